// cmake/bootstrap in a copy of its tree, where the packages of the system are what a stub says and PyPI is a
// folder.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "support/subprocess.h"

namespace holdfast::test { namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

class Bootstrap : public testing::Test {
 protected:
  Bootstrap() {
    const fs::path source = HOLDFAST_SOURCE_DIR;
    fs::create_directories(root() / "cmake");
    for (const char* name : {"bootstrap", "FindLibTorch.cmake", "wheels"}) {
      fs::copy(source / "cmake" / name, root() / "cmake" / name, fs::copy_options::recursive);
    }
    program("dpkg-query", "shift 3; printf '%s installed\\n' \"$@\"");
    program("sudo", "echo \"sudo $*\"; exit 1");
    program("apt-get", "echo called >>\"" + (folder_.path() / "apt-get").string() + "\"; exit 1");
    program("cmake", "echo cmake version 3.30.0");
    program("ninja", "");
    program("readelf", "");
    program("uname", "echo x86_64");
  }
  fs::path root() const { return folder_.path() / "tree"; }
  fs::path libtorch() const { return root() / ".deps/libtorch-2.11.0"; }
  std::string text_of(const std::string& file) const { return read_text(root() / file); }
  void program(const std::string& name, const std::string& commands) const {
    const fs::path file = folder_.path() / "bin" / name;
    fs::create_directories(file.parent_path());
    write_text(file, "#!/bin/bash\n" + commands + "\n");
    fs::permissions(file, fs::perms::owner_all | fs::perms::group_all | fs::perms::others_all);
  }
  // A wheel of that name with a little of what a real one holds; its SHA-256.
  std::string wheel(const std::string& name) const {
    const std::string write =
        "import hashlib, sys, zipfile\n"
        "with zipfile.ZipFile(sys.argv[1], 'w') as wheel:\n"
        "    for name in ('include/a.h', 'lib/libtorch_cpu.so', 'lib/libtorch_python.so', 'version.py'):\n"
        "        wheel.writestr('torch/' + name, name)\n"
        "    wheel.writestr('torch-2.11.0.dist-info/METADATA',\n"
        "                   'Metadata-Version: 2.1\\nName: torch\\nVersion: 2.11.0\\n')\n"
        "    wheel.writestr('torch-2.11.0.dist-info/WHEEL', 'Wheel-Version: 1.0\\n')\n"
        "    wheel.writestr('torch-2.11.0.dist-info/licenses/LICENSE', '')\n"
        "print(hashlib.sha256(open(sys.argv[1], 'rb').read()).hexdigest())\n";
    fs::create_directories(folder_.path() / "index");
    const Ended made =
        Subprocess({"/usr/bin/python3", "-c", write, (folder_.path() / "index" / name).string()}).wait();
    EXPECT_EQ(made.exit_code, 0) << made.err;
    return made.out.substr(0, 64);
  }
  Ended run(const std::vector<std::string>& options, bool as_nobody = false) const {
    std::vector<std::string> command = {(root() / "cmake/bootstrap").string(), "--no-cuda"};
    command.insert(command.end(), options.begin(), options.end());
    if (as_nobody && geteuid() == 0) {
      command.insert(command.begin(), {"/usr/bin/setpriv", "--reuid=65534", "--clear-groups"});
      fs::permissions(folder_.path(), fs::perms::all);
      fs::permissions(root(), fs::perms::all);
    }
    return Subprocess(command, {{"PATH", (folder_.path() / "bin").string() + ":/usr/local/bin:/usr/bin:/bin"},
                                {"HOLDFAST_LIBTORCH", ""},
                                {"PIP_NO_INDEX", "1"},
                                {"PIP_FIND_LINKS", (folder_.path() / "index").string()}})
        .wait();
  }

  TemporaryFolder folder_;
};

const std::string kWheel = "torch-2.11.0-cp311-cp311-manylinux_2_28_x86_64.whl";

TEST_F(Bootstrap, RefusesAWheelThatIsNotTheOneThatIsNamed) {
  const std::string digest = wheel(kWheel);
  const Ended ended = run({});
  EXPECT_EQ(ended.exit_code, 1) << ended.out;
  EXPECT_THAT(ended.err,
              AllOf(HasSubstr("bootstrap: error: torch==2.11.0 has the SHA-256 " + digest + ", not "),
                    HasSubstr("nothing of it was used")));
  EXPECT_EQ(lines_of(ended.err).size(), 1U) << ended.err;
  EXPECT_FALSE(fs::exists(libtorch()));
  EXPECT_FALSE(fs::exists(root() / ".deps/env"));
  for (const auto& entry : fs::directory_iterator(root() / ".deps")) {
    EXPECT_FALSE(entry.is_directory()) << entry << " is left behind";
  }
}

TEST_F(Bootstrap, TakesTheWheelThatIsNamed) {
  const std::string digest = wheel(kWheel);
  std::ofstream(root() / "cmake/wheels/2.11.0.txt") << "torch==2.11.0 --hash=sha256:" << digest << '\n';
  const Ended ended = run({});
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_TRUE(fs::exists(libtorch() / "torch/lib/libtorch_cpu.so"));
  EXPECT_FALSE(fs::exists(libtorch() / "torch/lib/libtorch_python.so"));
  EXPECT_EQ(run({"--no-install"}).exit_code, 0) << "nothing is missing";
}

TEST_F(Bootstrap, SaysWhereNoHashIsKnown) {
  wheel("torch-2.99.0-cp311-cp311-manylinux_2_28_x86_64.whl");
  EXPECT_THAT(
      run({"--libtorch", "2.99.0"}).out,
      HasSubstr("LibTorch 2.99.0: cmake/wheels has no SHA-256 of it; what PyPI's index says counts\n"));
}

// Every version that the scripts and the documentation name, and the parts that its two kinds want.
TEST_F(Bootstrap, KnowsEveryWheelThatItTakesByDefault) {
  for (const char* version : {"2.11.0", "2.10.0"}) {
    const std::string pins = text_of(std::string("cmake/wheels/") + version + ".txt");
    for (const char* part :
         {"torch", "nvidia-cuda-runtime", "nvidia-cuda-cupti", "nvidia-cudnn", "nvidia-nccl"}) {
      EXPECT_THAT(
          pins, ContainsRegex("\n" + std::string(part) + "[-a-z0-9]*==[0-9.]* --hash=sha256:[0-9a-f]{64}\n"));
    }
  }
  EXPECT_THAT(text_of("cmake/wheels/cmake.txt"),
              ContainsRegex("\ncmake==3.[0-9.]* --hash=sha256:[0-9a-f]{64}\n"));
}

TEST_F(Bootstrap, SaysWhatItInstallsAndHowBeforeItUsesSudo) {
  program("dpkg-query", "shift 3; printf '%s installed\\n' \"$@\" | grep -v ccache");
  const Ended ended = run({}, /*as_nobody=*/true);
  if (ended.err.find("setpriv") != std::string::npos)
    GTEST_SKIP() << "cannot become another user: " << ended.err;
  EXPECT_EQ(ended.exit_code, 1) << ended.err;
  const std::size_t sudo = ended.out.find("sudo -n true");
  for (const std::string said :
       {"bootstrap: 1 packages are missing: ccache\n", "bootstrap: missing: LibTorch 2.11.0 (from PyPI",
        "bootstrap: they come with: sudo apt-get update && sudo apt-get install -y --no-install-recommends "
        "ccache\n"}) {
    EXPECT_LT(ended.out.find(said), sudo) << said << ended.out;
  }
}

TEST_F(Bootstrap, SaysThatCMakeComesFromPyPIWhereTheDistributionsIsTooOld) {
  write_text(folder_.path() / "os-release", "ID=ubuntu\nVERSION_ID=22.04\n");
  std::string script = text_of("cmake/bootstrap");
  const std::string real = "/etc/os-release";
  ASSERT_NE(script.find(real), std::string::npos);
  write_text(root() / "cmake/bootstrap",
             script.replace(script.find(real), real.size(), (folder_.path() / "os-release").string()));
  program("cmake", "exit 127");
  program("dpkg-query", "shift 3; printf '%s installed\\n' \"$@\" | grep -v '^cmake '");
  const Ended ended = run({"--no-install", "--no-torch"});
  EXPECT_EQ(ended.exit_code, 1) << ended.out;
  EXPECT_THAT(ended.out, AllOf(HasSubstr("missing: CMake of at least 3.25 (from PyPI"),
                               Not(HasSubstr("packages are missing"))));
}

TEST_F(Bootstrap, TakesNoCMakeOfAnotherArchitecture) {
  program("cmake", "echo cmake version 3.22.1");
  program("uname", "echo aarch64");
  const Ended ended = run({"--no-torch"});
  EXPECT_EQ(ended.exit_code, 1) << ended.out;
  EXPECT_THAT(ended.err, HasSubstr("error: there is no CMake wheel for aarch64 here: put a CMake of at least "
                                   "3.25 first in PATH\n"));
  EXPECT_FALSE(fs::exists(root() / ".deps/env"));
}

TEST_F(Bootstrap, WithNoInstallItListsAndFails) {
  program("dpkg-query", "shift 3; printf '%s installed\\n' \"$@\" | grep -vE 'ccache|unzip'");
  Ended ended = run({"--no-install", "--tests"});
  EXPECT_EQ(ended.exit_code, 1) << ended.out;
  EXPECT_THAT(ended.out,
              AllOf(HasSubstr("2 packages are missing: ccache unzip\n"), HasSubstr("LibTorch 2.11.0")));
  EXPECT_THAT(ended.err,
              ContainsRegex("error: --no-install: .*\n  (sudo )?apt-get update && (sudo )?apt-get install -y "
                            "--no-install-recommends ccache unzip && cmake/bootstrap --no-cuda --tests\n$"));
  EXPECT_FALSE(fs::exists(folder_.path() / "apt-get")) << "it was called";
  ended = run({"--no-install", "--no-torch"});
  EXPECT_EQ(ended.exit_code, 1);
  EXPECT_THAT(ended.err, Not(HasSubstr("cmake/bootstrap")));
}

}}  // namespace holdfast::test
