#include "papers/redox/redox_chooser.h"

#include <memory>
#include <span>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "plan/testing/odd_blocks.h"

namespace headrace {
namespace {

using ::testing::ElementsAre;
using ::testing::UnorderedElementsAre;

std::vector<std::uint32_t> List(std::span<const std::uint32_t> numbers) {
  return {numbers.begin(), numbers.end()};
}

// One virtual chunk of three chunks with 4, 2 and 4 samples; the first of equal chunks is chosen.
struct Parts {
  explicit Parts(std::uint32_t classes = 0, const std::vector<bool>& members = {})
      : options(Options(classes)),
        layout(RedoxLayout::Make(options).value()),
        places(layout),
        chooser(options, layout, members, places) {
    chooser.Begin(0);
  }

  static RedoxOrderOptions Options(std::uint32_t classes) {
    RedoxOrderOptions options;
    options.job.sample_count = 10;
    options.blocks = std::make_shared<OddBlocks>(std::vector<std::uint32_t>{4, 2, 4},
                                                 std::vector<std::uint32_t>(10, 1));
    options.chunks_per_virtual = 3;
    options.ties = RedoxOrderOptions::Ties::kFirst;
    options.slot_classes = classes;
    return options;
  }

  // Reads the chunk for `slot` and keeps everything that has a place.
  void Refill(std::uint32_t slot, std::uint32_t member) {
    const RedoxLayout::Virtual& of = layout->virtual_of(slot);
    for (const std::uint32_t position : chooser.ChoosePositions(slot, member)) {
      chooser.Keep(of, member, position);
      places.Put(of, of.first_slot + position % of.slot_count,
                 {.sample = position, .read = member});
    }
  }

  RedoxOrderOptions options;
  std::shared_ptr<const RedoxLayout> layout;
  RedoxPlaces places;
  RedoxChooser chooser;
};

TEST(RedoxChooserTest, TheChunkThatFillsMostPlacesIsChosenAndNotTwice) {
  Parts parts;
  EXPECT_EQ(parts.chooser.ChooseChunk(1), 0U);
  parts.Refill(1, 0);
  EXPECT_THAT(List(parts.places.held()), ElementsAre(1, 1, 1, 1));
  parts.places.Take(1, 0);
  // Chunks 1 and 2 both fill the only free place.
  EXPECT_EQ(parts.chooser.ChooseChunk(1), 1U);
  parts.places.Take(2, 0);
  EXPECT_EQ(parts.chooser.ChooseChunk(1), 2U);
  parts.Refill(1, 2);
  parts.places.Take(1, 0);
  EXPECT_EQ(parts.chooser.ChooseChunk(1), 1U);  // Only chunk 1 still has its sample of slot 1.
}

TEST(RedoxChooserTest, PositionsBeginWithTheSlotsOwnAndOmitTakenPlaces) {
  Parts parts;
  EXPECT_THAT(List(parts.chooser.ChoosePositions(2, 0)), ElementsAre(2, 0, 1, 3));
  parts.places.Put(parts.layout->virtual_of(0), 0, {.sample = 8, .read = 0});
  EXPECT_THAT(List(parts.chooser.ChoosePositions(2, 0)), ElementsAre(2, 1, 3));
  parts.chooser.Keep(parts.layout->virtual_of(0), 0, 3);
  EXPECT_THAT(List(parts.chooser.ChoosePositions(2, 0)), ElementsAre(2, 1));
}

TEST(RedoxChooserTest, OnlyMembersAreChosen) {
  std::vector<bool> members(10, true);
  members[0] = members[3] = false;
  Parts parts(0, members);
  EXPECT_THAT(List(parts.chooser.ChoosePositions(1, 0)), ElementsAre(1, 2));
  EXPECT_EQ(parts.chooser.ChooseChunk(0), 2U);  // Chunk 1 would fill two places, chunk 2 four.
}

TEST(RedoxChooserTest, AClassTakesAsManyPositionsAsItHasPlaces) {
  Parts parts(2);
  ASSERT_EQ(parts.layout->classes(), 2U);
  EXPECT_THAT(List(parts.chooser.ChoosePositions(0, 0)), UnorderedElementsAre(0, 1, 2, 3));
  parts.Refill(0, 1);  // One sample for each of the two slots, which have two places.
  const auto chosen = parts.chooser.ChoosePositions(1, 0);
  ASSERT_EQ(chosen.size(), 2U);
  EXPECT_EQ(chosen[0] % 2, 1U);  // The slot's own first.
  EXPECT_EQ(chosen[1] % 2, 0U);
}

}  // namespace
}  // namespace headrace
