// Whom a node believes, over real connections: certificates, tokens, and whatever else comes to its
// port.

#include <arpa/inet.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <netinet/in.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/prng.h"
#include "base/units.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "peer/grpc/peer_node.h"
#include "peer/grpc/peer_wire.h"
#include "peer/grpc/proto/peers.grpc.pb.h"
#include "peer/grpc/testing/peer_harness.h"
#include "store/testing/temp_files.h"

namespace headrace {
namespace {

constexpr char kName[] = "node.headrace.test";
constexpr long kDay = 86'400;

std::string TextWritten(BIO* bio) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio, &data);
  std::string text(data, static_cast<std::size_t>(size));
  BIO_free(bio);
  return text;
}

// A certificate and its key.
struct Identity {
  std::shared_ptr<EVP_PKEY> key{EVP_EC_gen("P-256"), EVP_PKEY_free};
  std::shared_ptr<X509> certificate{X509_new(), X509_free};

  [[nodiscard]] std::string KeyText() const {
    BIO* const bio = BIO_new(BIO_s_mem());
    PEM_write_bio_PrivateKey(bio, key.get(), nullptr, nullptr, 0, nullptr, nullptr);
    return TextWritten(bio);
  }
  [[nodiscard]] std::string CertificateText() const {
    BIO* const bio = BIO_new(BIO_s_mem());
    PEM_write_bio_X509(bio, certificate.get());
    return TextWritten(bio);
  }
};

void AddExtension(X509* certificate, int what, const char* value) {
  X509_EXTENSION* const extension = X509V3_EXT_conf_nid(nullptr, nullptr, what, value);
  HEADRACE_CHECK(extension != nullptr && X509_add_ext(certificate, extension, -1) == 1);
  X509_EXTENSION_free(extension);
}

// Signed by `authority`; null: by itself, as an authority. Valid until `seconds` from now.
Identity MakeIdentity(const std::string& name, const Identity* authority, long seconds = kDay) {
  static long serial = 0;
  Identity made;
  X509* const certificate = made.certificate.get();
  X509_set_version(certificate, 2);
  ASN1_INTEGER_set(X509_get_serialNumber(certificate), ++serial);
  X509_gmtime_adj(X509_getm_notBefore(certificate), -2 * kDay);
  X509_gmtime_adj(X509_getm_notAfter(certificate), seconds);
  X509_set_pubkey(certificate, made.key.get());
  X509_NAME_add_entry_by_txt(X509_get_subject_name(certificate), "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>(name.c_str()), -1, -1, 0);
  const Identity& signer = authority == nullptr ? made : *authority;
  X509_set_issuer_name(certificate, X509_get_subject_name(signer.certificate.get()));
  if (authority == nullptr) {
    AddExtension(certificate, NID_basic_constraints, "critical,CA:TRUE");
  } else {
    AddExtension(certificate, NID_subject_alt_name, ("DNS:" + name).c_str());
  }
  HEADRACE_CHECK(X509_sign(certificate, signer.key.get(), EVP_sha256()) > 0);
  return made;
}

class PeerTrustTest : public ::testing::Test {
 protected:
  // Where a node listens that has `identity` and believes `authority`.
  PeerListen ListenAs(const Identity& identity, const Identity& authority) {
    const std::string at = files_.folder() + "/" + std::to_string(++written_);
    const auto write = [&](const std::string& what, const std::string& text) {
      WriteFile(at + what, text);
      return at + what;
    };
    return {.authority = write("-authority.pem", authority.CertificateText()),
            .certificate = write("-certificate.pem", identity.CertificateText()),
            .key = write("-key.pem", identity.KeyText()),
            .name = kName};
  }
  // A node that gives "here" as sample 0, and one that asks it.
  void Start(const PeerListen& giver, const PeerListen& asker) {
    giver_ = PeerNode::Listen(giver).value();
    asker_ = PeerNode::Listen(asker).value();
    const PeerGroup group{.addresses = {asker_->address(), giver_->address()},
                          .token = "secret",
                          .answer_ns = 60 * kNsPerSecond};
    PeerGroup of_giver = group;
    of_giver.node = 1;
    ASSERT_TRUE(asker_->Connect(group).ok());
    ASSERT_TRUE(giver_->Connect(of_giver).ok());
    giver_->Give(&held_);
  }
  void TearDown() override {
    if (giver_ != nullptr) giver_->Give(nullptr);
  }
  Result<std::string> Ask() { return ReadAll(*asker_, 1, {{0, 4}})[0]; }
  void ExpectRefused() {
    EXPECT_EQ(Ask().status().code(), StatusCode::kUnavailable);
    EXPECT_EQ(asker_->traffic().failed, 1U);
    EXPECT_EQ(giver_->traffic().given_samples, 0U);
  }
  // Calls the giver with `token`, over a channel of the test's.
  grpc::StatusCode CallWith(const std::shared_ptr<grpc::ChannelCredentials>& credentials,
                            const std::string& token) {
    grpc::ChannelArguments arguments;
    arguments.SetSslTargetNameOverride(kName);
    const auto stub = peers::v1::Peers::NewStub(
        grpc::CreateCustomChannel(giver_->address(), credentials, arguments));
    grpc::ClientContext context;
    context.AddMetadata(kPeerTokenKey, token);
    const auto stream = stub->Samples(&context);
    peers::v1::SampleRequests requests;
    peers::v1::SampleRequest& request = *requests.add_requests();
    request.set_number(1);
    request.set_bytes(4);
    stream->Write(requests);
    stream->WritesDone();
    peers::v1::SampleAnswers answers;
    while (stream->Read(&answers)) {
    }
    return stream->Finish().error_code();
  }

  TempFiles files_;
  int written_ = 0;
  TierSamples held_{{"here"}};
  std::unique_ptr<PeerNode> giver_;
  std::unique_ptr<PeerNode> asker_;
  const Identity authority_ = MakeIdentity("authority", nullptr);
  const Identity stranger_ = MakeIdentity("authority", nullptr);  // another of that name
  const Identity node_ = MakeIdentity(kName, &authority_);
};

TEST_F(PeerTrustTest, NodesWithCertificatesOfOneAuthorityGiveEachOtherSamples) {
  Start(ListenAs(node_, authority_), ListenAs(MakeIdentity(kName, &authority_), authority_));
  const auto got = Ask();
  ASSERT_TRUE(got.ok()) << got.status().message();
  EXPECT_EQ(got.value(), "here");
}

TEST_F(PeerTrustTest, WhoHasACertificateOfAnotherAuthorityGetsNothing) {
  Start(ListenAs(node_, authority_), ListenAs(MakeIdentity(kName, &stranger_), authority_));
  ExpectRefused();
}

TEST_F(PeerTrustTest, ANodeOfAnotherAuthorityIsNotBelieved) {
  Start(ListenAs(MakeIdentity(kName, &stranger_), authority_), ListenAs(node_, authority_));
  ExpectRefused();
}

TEST_F(PeerTrustTest, ANodeOfAnotherNameIsNotBelieved) {
  Start(ListenAs(MakeIdentity("elsewhere.test", &authority_), authority_),
        ListenAs(node_, authority_));
  ExpectRefused();
}

TEST_F(PeerTrustTest, AnExpiredCertificateIsRefusedOnEitherSide) {
  const Identity expired = MakeIdentity(kName, &authority_, -kDay);
  Start(ListenAs(node_, authority_), ListenAs(expired, authority_));
  ExpectRefused();
  giver_->Give(nullptr);
  Start(ListenAs(expired, authority_), ListenAs(node_, authority_));
  ExpectRefused();
}

TEST_F(PeerTrustTest, WithoutACertificateNothingIsGiven) {
  Start(ListenAs(node_, authority_), ListenAs(node_, authority_));
  grpc::SslCredentialsOptions no_certificate;
  no_certificate.pem_root_certs = authority_.CertificateText();
  EXPECT_EQ(CallWith(grpc::SslCredentials(no_certificate), "secret"),
            grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(CallWith(grpc::InsecureChannelCredentials(), "secret"), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(giver_->traffic().given_samples, 0U);
  EXPECT_TRUE(Ask().ok()) << "others are served as before";
}

TEST_F(PeerTrustTest, ACertificateIsNoToken) {
  Start(ListenAs(node_, authority_), ListenAs(node_, authority_));
  grpc::SslCredentialsOptions options{.pem_root_certs = authority_.CertificateText(),
                                      .pem_private_key = node_.KeyText(),
                                      .pem_cert_chain = node_.CertificateText()};
  const auto credentials = grpc::SslCredentials(options);
  EXPECT_EQ(CallWith(credentials, "guess"), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(giver_->traffic().bad_messages, 1U);
  EXPECT_EQ(CallWith(credentials, "secret"), grpc::StatusCode::OK);
  EXPECT_EQ(giver_->traffic().given_samples, 1U);
}

TEST(PeerTokenTest, NodesWithDifferentTokensSayThatBothWithoutSayingOne) {
  auto node = PeerNode::Listen({}).value();
  auto other = PeerNode::Listen({}).value();
  const std::vector<std::string> addresses = {node->address(), other->address()};
  ASSERT_TRUE(node->Connect({.node = 0, .addresses = addresses, .token = "one secret"}).ok());
  ASSERT_TRUE(other->Connect({.node = 1, .addresses = addresses, .token = "two secrets"}).ok());
  for (const auto& [at, from, to] :
       {std::tuple{node.get(), 1, addresses[1]}, std::tuple{other.get(), 0, addresses[0]}}) {
    const Status said = at->Agree(1, "", [] { return true; }).status();
    EXPECT_EQ(said.code(), StatusCode::kFailedPrecondition);
    EXPECT_EQ(said.message(),
              "beginning run 1 with node " + std::to_string(from) + " (" + to +
                  "): that node has another token and refuses this one's; give all nodes of the "
                  "job the same secret in the environment variable HEADRACE_TOKEN, or other "
                  "addresses if that one is of another job");
    EXPECT_THAT(std::string(said.message()), testing::Not(testing::HasSubstr("secrets")));
  }
}

// A stranger's call must not end a run; so a call that was refused is only a hint.
TEST(PeerTokenTest, WhoWaitsInVainSaysThatCallsWithAnotherTokenWereRefused) {
  std::array nodes = {PeerNode::Listen({}).value(), PeerNode::Listen({}).value()};
  PeerGroup group{.addresses = {nodes[0]->address(), nodes[1]->address()}, .token = "secret"};
  group.begin_ns = 1'000'000;
  for (group.node = 0; group.node < 2; ++group.node) {
    ASSERT_TRUE(nodes[group.node]->Connect(group).ok());
  }
  const auto stub = peers::v1::Peers::NewStub(
      grpc::CreateChannel(nodes[1]->address(), grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  context.AddMetadata(kPeerTokenKey, "wrong");
  peers::v1::AgreeReply reply;
  EXPECT_EQ(stub->Agree(&context, &reply)->Finish().error_code(),
            grpc::StatusCode::UNAUTHENTICATED);
  const Status said = nodes[1]->Agree(1, "", [] { return true; }).status();
  EXPECT_EQ(said.code(), StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(said.message()),
              testing::EndsWith("as those of node 1; also check HEADRACE_TOKEN: this node refused "
                                "1 call that had another one, or none"));
}

// Connects to a node and writes `bytes`. Returns when the node has closed the connection.
void SendGarbage(const std::string& address, const std::string& bytes) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port =
      htons(static_cast<std::uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof(to)), 0);
  static_cast<void>(send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL));
  shutdown(fd, SHUT_WR);
  char ignored[4096];
  while (recv(fd, ignored, sizeof(ignored), 0) > 0) {
  }
  close(fd);
}

TEST_F(PeerTrustTest, GarbageOnThePortDisturbsNobody) {
  Prng random(1, 0, RandomStream::kOrder);
  std::vector<std::string> garbage = {
      "", "GET / HTTP/1.1\r\nHost: x\r\n\r\n",
      // The preface of HTTP/2, then a frame of 16 MB, and one of no kind.
      std::string("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\xff\xff\xff\x00\x00\x00\x00\x00\x01", 33),
      std::string(
          "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x04\xee\xff\x7f\xff\xff\xff\x00\x00\x00\x00",
          37)};
  for (int i = 0; i < 20; ++i) {
    std::string bytes(random.Below(3000), '\0');
    for (char& byte : bytes) byte = static_cast<char>(random.Below(256));
    garbage.push_back((i % 2 == 0 ? "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" : "") + bytes);
  }
  for (const bool secured : {false, true}) {
    const PeerListen listen = secured ? ListenAs(node_, authority_) : PeerListen();
    Start(listen, listen);
    for (const std::string& bytes : garbage) SendGarbage(giver_->address(), bytes);
    EXPECT_TRUE(Ask().ok());
    EXPECT_EQ(giver_->traffic().given_samples, 1U);
    giver_->Give(nullptr);
  }
}

TEST_F(PeerTrustTest, AMessageThatIsNoneEndsItsStreamAndIsCounted) {
  Start({}, {});
  grpc::GenericStub stub(
      grpc::CreateChannel(giver_->address(), grpc::InsecureChannelCredentials()));
  const auto wrong = {std::string("\xff\xff\xff"), std::string("\x0a\x7f")};
  for (const std::string& bytes : wrong) {
    grpc::ClientContext context;
    context.AddMetadata(kPeerTokenKey, "secret");
    grpc::CompletionQueue queue;
    const auto stream = stub.PrepareCall(&context, "/headrace.peers.v1.Peers/Samples", &queue);
    void* tag = nullptr;
    bool ok = false;
    stream->StartCall(nullptr);
    queue.Next(&tag, &ok);
    const grpc::Slice slice(bytes);
    stream->Write(grpc::ByteBuffer(&slice, 1), nullptr);
    queue.Next(&tag, &ok);
    grpc::Status status;
    stream->Finish(&status, nullptr);
    queue.Next(&tag, &ok);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  }
  EXPECT_EQ(giver_->traffic().bad_messages, 2U);
  EXPECT_TRUE(Ask().ok());
}

}  // namespace
}  // namespace headrace
