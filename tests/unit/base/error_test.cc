#include "holdfast/base/error.h"

#include <gtest/gtest.h>

#include <cerrno>

namespace holdfast { namespace {

TEST(IoError, SaysOperationPathErrnoAndRemedy) {
  const IoError error("fsync", "/mnt/x", EXDEV, "use one volume");
  EXPECT_STREQ(error.what(), "fsync /mnt/x: Invalid cross-device link (EXDEV); use one volume");
  EXPECT_EQ(error.operation(), "fsync");
  EXPECT_EQ(error.path(), "/mnt/x");
  EXPECT_EQ(error.code(), EXDEV);
  EXPECT_EQ(error.exit_code(), ExitCode::io_failed);
}

TEST(IoError, KnowsTheUsualRemedyWhenNoneIsGiven) {
  const std::string full = IoError("write", "/mnt/x", ENOSPC).what();
  EXPECT_EQ(full.rfind("write /mnt/x: No space left on device (ENOSPC); free space", 0), 0u) << full;
  EXPECT_STREQ(IoError("open", "/mnt/x", EXDEV).what(), "open /mnt/x: Invalid cross-device link (EXDEV)");
}

// O_DIRECT passes on what the device said; the page cache makes EIO of it.
TEST(IoError, KnowsTheRemedyOfAnErrorOfTheDevice) {
  for (const int code : {EIO, ENODATA, EILSEQ, EREMOTEIO}) {
    const std::string text = IoError("read", "/mnt/x", code).what();
    EXPECT_NE(text.find("; the device reported an error: look at dmesg"), std::string::npos) << text;
  }
  for (const int code : {EBADMSG, EUCLEAN}) {
    const std::string text = IoError("read", "/mnt/x", code).what();
    EXPECT_NE(text.find("; the file system is damaged: "), std::string::npos) << text;
  }
}

TEST(IoError, AnUnknownErrnoIsStillNamed) {
  EXPECT_STREQ(IoError("open", "f", 9999).what(), "open f: unknown error (errno 9999)");
}

TEST(Error, EachClassKnowsItsExitCode) {
  EXPECT_EQ(Error("x").exit_code(), ExitCode::internal);
  EXPECT_EQ(UsageError("x").exit_code(), ExitCode::usage);
  EXPECT_EQ(RefusedError("x").exit_code(), ExitCode::refused);
  EXPECT_EQ(SupersededError("x").exit_code(), ExitCode::superseded);
}

// A program prints what() itself.
TEST(Error, NothingInItsTextSteersATerminal) {
  const std::string name = "run\x1b[2J\xc2\x9b\xe2\x80\xae\xff";
  const std::string shown = "run\\x1b[2J\\xc2\\x9b\\xe2\\x80\\xae\\xff";
  EXPECT_EQ(Error(name).what(), shown);
  EXPECT_EQ(UsageError(name).what(), shown);
  EXPECT_EQ(RefusedError(name).what(), shown);
  EXPECT_EQ(SupersededError(name).what(), shown);
  EXPECT_EQ(IoError("open", name, EXDEV).what(), "open " + shown + ": Invalid cross-device link (EXDEV)");
  EXPECT_STREQ(Error("déjà vu").what(), "déjà vu");
}

}}  // namespace holdfast
