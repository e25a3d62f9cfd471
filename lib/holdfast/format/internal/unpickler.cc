#include "holdfast/format/internal/unpickler.h"

#include <algorithm>
#include <bit>
#include <string>

#include "holdfast/base/utf8.h"
#include "holdfast/format/internal/pickle_opcodes.h"
#include "holdfast/format/internal/pickle_tensor.h"
#include "holdfast/format/internal/segments.h"
#include "holdfast/format/internal/torch_types.h"

namespace holdfast { inline namespace v0_2 { namespace internal {
namespace {

using Kind = PickleValue::Kind;

constexpr std::size_t kLeastAllocation = 32;  // bytes of the smallest allocation

const PickleValue* constant(Kind kind, std::int64_t integer) {
  // Shared values: a pickle of millions of `None` must not need memory for each.
  static const PickleValue none{};
  static const PickleValue yes{.kind = Kind::boolean, .integer = 1};
  static const PickleValue no{.kind = Kind::boolean, .integer = 0};
  static const PickleValue empty{.kind = Kind::tuple, .integer = 0};
  if (kind == Kind::boolean) return integer != 0 ? &yes : &no;
  return kind == Kind::tuple ? &empty : &none;
}

class Unpickler {
 public:
  explicit Unpickler(std::string_view pickle) : size_(pickle.size()), rest_(pickle) {}

  Unpickled run() {
    while (!step()) {
    }
    // Python ignores both, so a hostile file could show it something else than us.
    if (stack_.size() != 1 || !marks_.empty()) refuse("values are left over at its end");
    if (!rest_.empty()) refuse("bytes follow its end");
    made_.root = stack_[0];
    return std::move(made_);
  }

 private:
  // The elements above the stack's last mark, or of a tuple.
  using Values = std::vector<const PickleValue*>;

  std::string_view take(std::size_t size) {
    if (size > rest_.size()) refuse("it ends too early");
    const std::string_view taken = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return taken;
  }
  std::uint64_t number(std::size_t size) {
    const std::string_view bytes = take(size);
    std::uint64_t value = 0;
    for (std::size_t i = size; i-- > 0;) value = value << 8U | static_cast<unsigned char>(bytes[i]);
    return value;
  }
  std::string_view line() {
    const std::size_t end = rest_.find('\n');
    // A name of more than 1024 bytes is not one of PyTorch's, and a search without a limit costs time.
    if (end == std::string_view::npos || end > 1024) refuse("a name has no end");
    const std::string_view text = take(end);
    take(1);
    return text;
  }

  void spend(std::size_t bytes) {
    spent_ += bytes;
    if (spent_ > kMostPickleMemory) {
      refuse("its values need more than " + std::to_string(kMostPickleMemory >> 20U) +
             " MiB of memory, which no state dict needs; in Python, save the state dict alone");
    }
  }
  // Room for `count` more elements; doubles the capacity, as push_back() does.
  template <class T>
  void make_room(std::vector<T>& vector, std::size_t count = 1) {
    if (vector.capacity() - vector.size() >= count) return;
    const std::size_t room = std::max(vector.size() + count, 2 * vector.capacity());
    // NOLINTNEXTLINE(bugprone-sizeof-expression): some elements are pointers
    spend(std::max((room - vector.capacity()) * sizeof(T), kLeastAllocation));
    vector.reserve(room);
  }

  PickleValue& add(Kind kind) {
    spend(sizeof(PickleValue));
    PickleValue& value = made_.values.emplace_back();
    value.kind = kind;
    return value;
  }
  void push(const PickleValue* value) {
    make_room(stack_);
    stack_.push_back(value);
  }
  void push_integer(std::int64_t integer) {
    PickleValue& value = add(Kind::integer);
    value.integer = integer;
    push(&value);
  }
  void push_text(Kind kind, std::string_view text) {
    PickleValue& value = add(kind);
    value.characters = {text.data(), text.size()};
    push(&value);
  }
  const PickleValue* pop() {
    // Values below the last mark belong to an enclosing list and are not to be taken.
    if (stack_.size() <= (marks_.empty() ? 0 : marks_.back())) refuse("it takes a value where there is none");
    const PickleValue* const value = stack_.back();
    stack_.pop_back();
    return value;
  }
  Values pop_mark() {
    if (marks_.empty()) refuse("it takes values where there are none");
    const auto begin = stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back());
    Values values(begin, stack_.end());
    stack_.erase(begin, stack_.end());
    marks_.pop_back();
    return values;
  }
  // All values but the constants are ours to change until they are handed out.
  PickleValue& top(Kind kind) {
    const PickleValue* const value = pop();
    push(value);
    if (value->kind != kind) refuse("it fills a value of another kind");
    return const_cast<PickleValue&>(*value);
  }
  void push_tuple(std::size_t size) {
    Values values;
    make_room(values, size);
    values.resize(size);
    for (std::size_t i = size; i-- > 0;) values[i] = pop();
    PickleValue& tuple = add(Kind::tuple);
    tuple.items = std::move(values);
    push(&tuple);
  }
  void fill_dict(const Values& values) {
    // Keys and values alternate; both stay in one list.
    if (values.size() % 2 != 0) refuse("a key without a value");
    PickleValue& dict = top(Kind::dict);
    make_room(dict.items, values.size());
    dict.items.insert(dict.items.end(), values.begin(), values.end());
  }
  void remember(std::uint64_t place) {
    const PickleValue* const value = pop();
    push(value);
    // PyTorch numbers its memo without gaps. A number of the file must not decide how much is allocated.
    if (place > memo_.size()) refuse("it numbers its values with gaps");
    if (place == memo_.size()) {
      make_room(memo_);
      memo_.push_back(nullptr);
    }
    memo_[place] = value;
  }
  void recall(std::uint64_t place) {
    if (place >= memo_.size()) refuse("it names a value that is not there");
    push(memo_[place]);
  }

  void global() {
    const char* const begin = rest_.data();
    const std::size_t module = line().size();
    const std::size_t name = line().size();
    const std::string_view both(begin, module + 1 + name);
    // A name that is not known is never looked up, so no code of the file can run.
    if (!is_known_name(both)) {
      refuse("it needs " +
             printable(std::string(both.substr(0, module)) + "." + std::string(both.substr(module + 1))) +
             ", which no state dict has; in Python, save the state dict alone");
    }
    push_text(Kind::name, both);
  }

  void build() {
    const PickleValue* const state = pop();
    const PickleValue* const target = pop();
    push(target);
    if (target->kind == Kind::dict) return;  // attributes of an OrderedDict: versions of modules
    if (target->kind != Kind::object || state->kind != Kind::dict || !target->items.empty()) {
      refuse("it sets the state of something that has none");
    }
    const_cast<PickleValue&>(*target).items = {state};
  }

  void new_object() {
    const PickleValue* const arguments = pop();
    const PickleValue* const type = pop();
    if (type->kind != Kind::name || !is_script_class(type->text()) || arguments->kind != Kind::tuple ||
        !arguments->items.empty()) {
      refuse("it makes an object of an unknown class");
    }
    push(&add(Kind::object));
  }

  void call() {
    const PickleValue* const arguments = pop();
    const PickleValue* const function = pop();
    if (function->kind != Kind::name || arguments->kind != Kind::tuple)
      refuse("it calls a value that is not a function");
    const std::string_view name = function->text();
    const Values& given = arguments->items;
    if (name == "collections\nOrderedDict") {
      if (!given.empty()) refuse("an OrderedDict with arguments");
      push(&add(Kind::dict));
    } else if (is_tensor_maker(name)) {
      // So that one description cannot become many tensors.
      // Each tensor's description has at least this many bytes in the pickle, so the memory stays bounded.
      constexpr std::size_t kLeastBytes = 32;
      // A dimension is a size and a stride, of at least two bytes each.
      dimensions_ += given.size() > 2 ? given[2]->items.size() : 0;
      if ((made_.tensors.size() + 1) * kLeastBytes > size_ || dimensions_ * 4 > size_) {
        refuse("it has more tensors than it describes");
      }
      PickleValue& value = add(Kind::tensor);
      spend(sizeof(PickleTensor) + 2 * kLeastAllocation);  // with its shape and its strides
      value.tensor = &made_.tensors.emplace_back(tensor_of(name, given));
      push(&value);
    } else if (returns_its_argument(name) && !given.empty()) {
      push(given[0]);
    } else {
      refuse("it calls " + printable(name) + " in an unknown way");
    }
  }

  void persistent() {
    PickleValue& value = add(Kind::storage);
    spend(sizeof(PickleStorage));
    value.storage = &made_.storages.emplace_back(storage_of(*pop()));
    push(&value);
  }

  // True at the end.
  bool step() {  // NOLINT(readability-function-cognitive-complexity): one line an opcode
    const auto opcode = static_cast<Opcode>(take(1)[0]);
    switch (opcode) {
      case Opcode::proto:
        // torch.save() writes protocol 2; the opcodes below are those that it uses there.
        if (number(1) != 2) refuse("it has another protocol than 2");
        break;
      case Opcode::stop:
        return true;
      case Opcode::mark:
        make_room(marks_);
        marks_.push_back(stack_.size());
        break;
      case Opcode::nothing:
        push(constant(Kind::none, 0));
        break;
      case Opcode::yes:
        push(constant(Kind::boolean, 1));
        break;
      case Opcode::no:
        push(constant(Kind::boolean, 0));
        break;
      case Opcode::bin_int1:
        push_integer(static_cast<std::int64_t>(number(1)));
        break;
      case Opcode::bin_int2:
        push_integer(static_cast<std::int64_t>(number(2)));
        break;
      case Opcode::bin_int:
        // The only one with a sign: BININT1 and BININT2 are unsigned.
        push_integer(static_cast<std::int32_t>(number(4)));
        break;
      case Opcode::long1:
        push_long();
        break;
      case Opcode::bin_float:
        push_real();
        break;
      case Opcode::bin_unicode:
        push_text(Kind::text, take(number(4)));
        break;
      case Opcode::empty_tuple:
        push(constant(Kind::tuple, 0));
        break;
      case Opcode::empty_list:
        push(&add(Kind::list));
        break;
      case Opcode::empty_dict:
        push(&add(Kind::dict));
        break;
      case Opcode::tuple: {
        Values values = pop_mark();
        // pop_mark() has allocated them, so here they are only counted.
        // NOLINTNEXTLINE(bugprone-sizeof-expression): the elements are pointers
        spend(std::max(values.size() * sizeof values[0], kLeastAllocation));
        PickleValue& tuple = add(Kind::tuple);
        tuple.items = std::move(values);
        push(&tuple);
        break;
      }
      case Opcode::tuple1:
        push_tuple(1);
        break;
      case Opcode::tuple2:
        push_tuple(2);
        break;
      case Opcode::tuple3:
        push_tuple(3);
        break;
      case Opcode::append: {
        const PickleValue* const value = pop();
        PickleValue& list = top(Kind::list);
        make_room(list.items);
        list.items.push_back(value);
        break;
      }
      case Opcode::appends: {
        const Values values = pop_mark();
        PickleValue& list = top(Kind::list);
        make_room(list.items, values.size());
        list.items.insert(list.items.end(), values.begin(), values.end());
        break;
      }
      case Opcode::set_item: {
        const PickleValue* const value = pop();
        const PickleValue* const key = pop();
        fill_dict({key, value});
        break;
      }
      case Opcode::set_items:
        fill_dict(pop_mark());
        break;
      case Opcode::bin_put:
        remember(number(1));
        break;
      case Opcode::long_bin_put:
        remember(number(4));
        break;
      case Opcode::bin_get:
        recall(number(1));
        break;
      case Opcode::long_bin_get:
        recall(number(4));
        break;
      case Opcode::global:
        global();
        break;
      case Opcode::reduce:
        call();
        break;
      case Opcode::new_obj:
        new_object();
        break;
      case Opcode::build:
        build();
        break;
      case Opcode::bin_pers_id:
        persistent();
        break;
      default:
        refuse("opcode " + std::to_string(static_cast<int>(opcode)) + ", which PyTorch does not write");
    }
    return false;
  }

  void push_long() {
    // Zero bytes are allowed, and mean 0.
    const std::size_t size = number(1);
    if (size > sizeof(std::int64_t)) refuse("a number of more than 64 bits");
    std::uint64_t value = number(size);
    const std::size_t bits = 8 * size;
    // Two's complement of `size` bytes: the highest bit is the sign.
    if (size > 0 && size < sizeof value && (value >> (bits - 1)) != 0) value |= ~std::uint64_t{0} << bits;
    push_integer(static_cast<std::int64_t>(value));
  }
  void push_real() {
    // Big-endian, unlike all other numbers of a pickle.
    std::uint64_t bits = 0;
    for (const char byte : take(8)) bits = bits << 8U | static_cast<unsigned char>(byte);
    PickleValue& value = add(Kind::real);
    value.real = std::bit_cast<double>(bits);
    push(&value);
  }

  std::size_t size_;
  std::string_view rest_;
  std::size_t spent_ = 0;       // bytes of memory for the values
  std::size_t dimensions_ = 0;  // of all tensors
  Unpickled made_;
  Values stack_;
  std::vector<std::size_t> marks_;  // sizes of the stack
  Values memo_;
};

}  // namespace

std::variant<Unpickled, Rejection> unpickle(std::string_view pickle) {
  if (pickle.size() > kMaxPickle) {
    return damaged("pickle: " + std::to_string(pickle.size()) + " bytes, more than names and shapes need");
  }
  try {
    return Unpickler(pickle).run();
  } catch (const PickleRefusal& refusal) {
    return damaged("pickle: " + refusal.reason);
  }
}

}}}  // namespace holdfast::v0_2::internal
