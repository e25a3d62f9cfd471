// Which provider a machine belongs to, and what follows from it.
#include "holdfast/interruption/cloud_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "holdfast/base/error.h"
#include "holdfast/cli/rehearsal/metadata_server.h"
#include "holdfast/interruption/monitor.h"
#include "support/fake_clock.h"
#include "support/notice_heard.h"
#include "support/subprocess.h"

namespace holdfast { namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

class Cloud : public testing::Test {
 protected:
  Cloud() { forget_variables(); }
  ~Cloud() override { forget_variables(); }
  static void forget_variables() {
    for (const char* const name : {"AWS_EC2_METADATA_SERVICE_ENDPOINT", "AWS_EC2_METADATA_DISABLED",
                                   "AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE", "GCE_METADATA_HOST",
                                   "HOLDFAST_AZURE_METADATA_ENDPOINT"}) {
      unsetenv(name);
    }
  }
  void use(std::string_view provider) {
    for (const auto& [name, value] : server_.environment(provider)) setenv(name.c_str(), value.c_str(), 1);
  }
  // What a machine says of itself.
  void dmi(const std::string& file, const std::string& text) { put("sys/class/dmi/id/" + file, text); }
  void put(const fs::path& file, const std::string& text) {
    fs::create_directories((folder_.path() / file).parent_path());
    test::write_text(folder_.path() / file, text);
  }
  void forget_machine() { fs::remove_all(folder_.path() / "sys"); }

  test::TemporaryFolder folder_;
  test::FakeClock clock_;
  MetadataServer server_{clock_};
};

TEST_F(Cloud, AMachineThatSaysNothingIsAskedNothing) {
  EXPECT_EQ(detect_cloud(folder_.path()), nullptr);
  dmi("sys_vendor", "QEMU\n");
  dmi("product_name", "Standard PC (Q35 + ICH9, 2009)\n");
  dmi("bios_version", "1.16.2-debian-1.16.2-1\n");
  dmi("product_uuid", "5ec2aaaa-0000-0000-0000-000000000000\n");
  EXPECT_EQ(detect_cloud(folder_.path()), nullptr);
  dmi("sys_vendor", "Microsoft Corporation\n");  // Hyper-V on somebody's desk
  dmi("product_name", "Virtual Machine\n");
  EXPECT_EQ(detect_cloud(folder_.path()), nullptr);

  CloudSource source(clock_, folder_.path());
  EXPECT_TRUE(source.may_block());
  EXPECT_THAT(source.poll(), IsEmpty());
  EXPECT_EQ(source.name(), "cloud");
  EXPECT_GE(source.interval(), 10min);
  EXPECT_EQ(source.figures().polls, 0);
}

TEST_F(Cloud, EveryProviderIsKnownByItsOwnWords) {
  const auto finds = [&](const char* file, const char* text) {
    forget_machine();
    put(file, text);
    return detect_cloud(folder_.path());
  };
  EXPECT_EQ(finds("sys/class/dmi/id/sys_vendor", "Amazon EC2\n"), find_provider("ec2"));
  EXPECT_EQ(finds("sys/class/dmi/id/bios_vendor", "Amazon EC2\n"), find_provider("ec2"));
  EXPECT_EQ(finds("sys/class/dmi/id/bios_version", "4.11.amazon\n"), find_provider("ec2"));
  EXPECT_EQ(finds("sys/hypervisor/uuid", "ec2e1916-9099-7caf-fd21-012345abcdef\n"), find_provider("ec2"));
  EXPECT_EQ(finds("sys/class/dmi/id/product_name", "Google Compute Engine\n"), find_provider("gcp"));
  EXPECT_EQ(finds("sys/class/dmi/id/chassis_asset_tag", "7783-7084-3265-9085-8269-3286-77\n"),
            find_provider("azure"));
}

// By chance one of 4096 machines of whatever provider has such a UUID.
TEST_F(Cloud, AUuidIsEvidenceOfEc2OnXenOnly) {
  const auto found = [&] { return detect_cloud(folder_.path()); };
  dmi("product_uuid", "EC2E1916-9099-7CAF-FD21-012345ABCDEF\n");
  EXPECT_EQ(found(), nullptr);
  put("sys/hypervisor/type", "xen\n");
  EXPECT_EQ(found(), find_provider("ec2"));
  dmi("sys_vendor", "Xen\n");
  EXPECT_EQ(found(), find_provider("ec2"));
  dmi("sys_vendor", "QEMU\n");
  EXPECT_EQ(found(), nullptr);
  dmi("sys_vendor", "Google\n");
  dmi("product_name", "Google Compute Engine\n");
  EXPECT_EQ(found(), find_provider("gcp"));
  put("sys/hypervisor/uuid", "ec2e1916-9099-7caf-fd21-012345abcdef\n");
  EXPECT_EQ(found(), find_provider("gcp"));
  dmi("product_name", "Virtual Machine\n");
  dmi("chassis_asset_tag", "7783-7084-3265-9085-8269-3286-77\n");
  EXPECT_EQ(found(), find_provider("azure"));
}

TEST_F(Cloud, AnEndpointThatIsSetIsEvidence) {
  dmi("sys_vendor", "Amazon EC2\n");
  use("azure");
  EXPECT_EQ(detect_cloud(folder_.path()), find_provider("azure"));
  use("gcp");
  EXPECT_EQ(detect_cloud(folder_.path()), find_provider("gcp"));
  use("ec2");
  EXPECT_EQ(detect_cloud(folder_.path()), find_provider("ec2"));
}

TEST_F(Cloud, WhatIsFoundIsListenedToOnTheSourcesOwnThread) {
  server_.announce({.in = 100s});
  for (const std::string_view name : {"ec2", "gcp", "azure"}) {
    forget_variables();
    use(name);
    Monitor monitor(clock_);
    monitor.add(std::make_unique<CloudSource>(clock_, folder_.path()));
    monitor.start();
    ASSERT_TRUE(test::heard_soon(monitor)) << name;
    ASSERT_THAT(monitor.notices(), SizeIs(1));
    EXPECT_EQ(monitor.notices()[0].source, name);
    EXPECT_FALSE(monitor.stop_requested());
  }
}

TEST_F(Cloud, ADisabledServiceIsNotAsked) {
  use("ec2");
  for (const char* const word : {"true", "True", "TRUE", "1"}) {
    setenv("AWS_EC2_METADATA_DISABLED", word, 1);
    CloudSource source(clock_, folder_.path());
    testing::internal::CaptureStderr();
    EXPECT_THAT(source.poll(), IsEmpty());
    EXPECT_THAT(testing::internal::GetCapturedStderr(),
                HasSubstr("holdfast: EC2's notices are off: AWS_EC2_METADATA_DISABLED=" + std::string(word)));
    EXPECT_EQ(server_.requests(), 0);
  }
}

TEST_F(Cloud, Ec2IsAskedByIpv6WhereThatIsSaid) {
  EXPECT_EQ(metadata_endpoint(*find_provider("ec2")), "http://169.254.169.254");
  for (const char* const mode : {"IPv6", "ipv6", "IPV6"}) {
    setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE", mode, 1);
    EXPECT_EQ(metadata_endpoint(*find_provider("ec2")), "http://[fd00:ec2::254]");
    EXPECT_EQ(metadata_endpoint(*find_provider("gcp")), "http://169.254.169.254");
    EXPECT_EQ(metadata_endpoint(*find_provider("azure")), "http://169.254.169.254");
    EXPECT_EQ(detect_cloud(folder_.path()), nullptr) << "no evidence";
  }
  setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://[fd00::1]:8080", 1);
  EXPECT_EQ(metadata_endpoint(*find_provider("ec2")), "http://[fd00::1]:8080") << "an address beats it";
  unsetenv("AWS_EC2_METADATA_SERVICE_ENDPOINT");
  setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE", "ipv4", 1);
  EXPECT_EQ(metadata_endpoint(*find_provider("ec2")), "http://169.254.169.254");
  setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE", "IPv5", 1);
  EXPECT_THROW(metadata_endpoint(*find_provider("ec2")), UsageError);
}

TEST_F(Cloud, CancelledBeforeItHasLookedItAsksNothing) {
  use("ec2");
  CloudSource source(clock_, folder_.path());
  source.cancel();
  EXPECT_THAT(source.poll(), IsEmpty());
  EXPECT_EQ(server_.requests(), 0);
}

TEST_F(Cloud, AddressesAreTakenAsPeopleWriteThem) {
  EXPECT_EQ(metadata_endpoint(*find_provider("gcp")), "http://169.254.169.254");
  setenv("GCE_METADATA_HOST", "metadata.google.internal:8080", 1);
  EXPECT_EQ(metadata_endpoint(*find_provider("gcp")), "http://metadata.google.internal:8080");
  setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://[fd00:ec2::254]/", 1);
  EXPECT_EQ(metadata_endpoint(*find_provider("ec2")), "http://[fd00:ec2::254]");
  for (const char* const wrong : {"https://host", "file:///etc/passwd", "http://", "http://user@host",
                                  "two words", "http://host/?a=b", "http://host\r\nX: y"}) {
    setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", wrong, 1);
    EXPECT_THROW(metadata_endpoint(*find_provider("ec2")), UsageError) << wrong;
  }
}

}}  // namespace holdfast
