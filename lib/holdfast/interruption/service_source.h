// A source that asks a provider's metadata service: Ec2Source, GcpSource, AzureSource.
//
// Errors: bad_alloc. Threads: as source.h says; may_block().
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "holdfast/interruption/source.h"

namespace holdfast { inline namespace v0_2 {

class ServiceSource : public Source {
 public:
  // Talks to one provider's service, and remembers its answers.
  class Conversation {
   public:
    virtual ~Conversation() = default;
    virtual std::vector<Notice> poll() = 0;
    // The notices of a poll() were lost: report them again.
    virtual void tell_again() = 0;
    virtual Duration interval() const = 0;
    virtual void cancel() = 0;
    virtual SourceFigures figures() const = 0;
  };

  std::string_view name() const override { return name_; }
  std::vector<Notice> poll() override;
  Duration interval() const override { return conversation_->interval(); }
  bool may_block() const override { return true; }
  void cancel() override { conversation_->cancel(); }
  SourceFigures figures() const override { return conversation_->figures(); }

 protected:
  // `name` outlives the source.
  ServiceSource(std::string_view name, std::unique_ptr<Conversation> conversation)
      : name_(name), conversation_(std::move(conversation)) {}

 private:
  std::string_view name_;
  std::unique_ptr<Conversation> conversation_;
};

}}  // namespace holdfast::v0_2
