#include "holdfast/format/internal/pickle/unpickler.h"

#include <algorithm>
#include <string>

#include "holdfast/base/utf8.h"
#include "holdfast/format/internal/pickle/pickle_bytes.h"
#include "holdfast/format/internal/pickle/pickle_names.h"
#include "holdfast/format/internal/pickle/pickle_opcodes.h"
#include "holdfast/format/internal/pickle/pickle_tensor.h"
#include "holdfast/format/internal/segments.h"

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
  static const PickleValue opaque{.kind = Kind::opaque, .integer = 0};
  if (kind == Kind::opaque) return &opaque;
  if (kind == Kind::boolean) return integer != 0 ? &yes : &no;
  return kind == Kind::tuple ? &empty : &none;
}

class Unpickler {
 public:
  explicit Unpickler(std::string_view pickle) : size_(pickle.size()), bytes_(pickle) {}

  Unpickled run() {
    while (!step()) {
    }
    // Python ignores both, so a hostile file could show it something else than us.
    if (stack_.size() != 1 || !marks_.empty()) refuse("values are left over at its end");
    if (!bytes_.empty()) refuse("bytes follow its end");
    made_.root = stack_[0];
    return std::move(made_);
  }

 private:
  // The elements above the stack's last mark, or of a tuple.
  using Values = std::vector<const PickleValue*>;

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
  void push_integer(std::optional<std::int64_t> integer) {
    if (!integer) return push(constant(Kind::opaque, 0));  // of more than 64 bits
    PickleValue& value = add(Kind::integer);
    value.integer = *integer;
    push(&value);
  }
  void push_real(double real) {
    PickleValue& value = add(Kind::real);
    value.real = real;
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
    const std::string_view name = bytes_.name();
    // A name that is not known is never looked up, so no code of the file can run.
    if (known_name(name).use == NameUse::unknown) {
      std::string dotted(name);
      dotted[name.find('\n')] = '.';
      refuse("it needs " + printable(dotted) +
             ", which is no tensor or plain value; in Python, save the state dict alone");
    }
    push_text(Kind::name, name);
  }

  void build() {
    const PickleValue* const state = pop();
    const PickleValue* const target = pop();
    push(target);
    // Attributes of an OrderedDict are versions of modules.
    const bool ignored = target->kind == Kind::dict || target->kind == Kind::opaque;
    if (ignored || target->kind == Kind::unstorable) return;
    if (target->kind != Kind::object || state->kind != Kind::dict || !target->items.empty()) {
      refuse("it sets the state of something that has none");
    }
    const_cast<PickleValue&>(*target).items = {state};
  }

  void new_object() {
    const PickleValue* const arguments = pop();
    const PickleValue* const type = pop();
    const NameUse use = type->kind == Kind::name ? known_name(type->text()).use : NameUse::unknown;
    const bool fits = arguments->kind == Kind::tuple;
    if (use == NameUse::script && fits && arguments->items.empty()) return push(&add(Kind::object));
    if (fits && (use == NameUse::plain || use == NameUse::argument)) {
      return push(called(type->text(), arguments->items));
    }
    refuse("it makes an object of an unknown class");
  }

  void call() {
    const PickleValue* const arguments = pop();
    const PickleValue* const function = pop();
    const bool is_call = function->kind == Kind::name && arguments->kind == Kind::tuple;
    if (!is_call) refuse("it calls a value that is not a function");
    std::string_view name = function->text();
    const Values* given = &arguments->items;
    if (known_name(name).use == NameUse::retyped) {
      // (function, class, its arguments, attributes); what it calls is what has the weights.
      const Values& all = arguments->items;
      const bool fits = all.size() >= 3 && all[0]->kind == Kind::name && all[2]->kind == Kind::tuple;
      if (!fits || known_name(all[0]->text()).use == NameUse::retyped) refuse_call(name);
      name = all[0]->text();
      given = &all[2]->items;
    }
    push(called(name, *given));
  }

  const PickleValue* called(std::string_view name, const Values& given) {
    const KnownName known = known_name(name);
    switch (known.use) {
      case NameUse::dict:
        if (!given.empty()) refuse("an OrderedDict with arguments");
        return &add(Kind::dict);
      case NameUse::tensor:
        return make_tensor(name, given);
      case NameUse::argument:
        if (given.empty()) refuse_call(name);
        return given[0];
      case NameUse::plain:
        return constant(Kind::opaque, 0);
      case NameUse::unstorable:
        return unstorable(known.why);
      default:
        refuse_call(name);
    }
  }
  [[noreturn]] static void refuse_call(std::string_view name) {
    refuse("it calls " + printable(name) + " in an unknown way");
  }

  const PickleValue* unstorable(std::string_view why) {
    PickleValue& value = add(Kind::unstorable);
    value.characters = {why.data(), why.size()};
    return &value;
  }

  const PickleValue* make_tensor(std::string_view maker, const Values& given) {
    // One description must not become many tensors: each has at least this many bytes in the pickle.
    constexpr std::size_t kLeastBytes = 32;
    // A dimension is a size and a stride, of at least two bytes each.
    dimensions_ += given.size() > 2 ? given[2]->items.size() : 0;
    if ((made_.tensors.size() + 1) * kLeastBytes > size_ || dimensions_ * 4 > size_) {
      refuse("it has more tensors than it describes");
    }
    auto made = tensor_of(maker, given);
    if (const auto* const why = std::get_if<std::string_view>(&made)) return unstorable(*why);
    PickleValue& value = add(Kind::tensor);
    spend(sizeof(PickleTensor) + 2 * kLeastAllocation);  // with its shape and its strides
    value.tensor = &made_.tensors.emplace_back(std::move(std::get<PickleTensor>(made)));
    return &value;
  }

  void persistent() {
    PickleValue& value = add(Kind::storage);
    spend(sizeof(PickleStorage));
    value.storage = &made_.storages.emplace_back(storage_of(*pop()));
    push(&value);
  }

  // True at the end.
  bool step() {  // NOLINT(readability-function-cognitive-complexity): one line an opcode
    const auto opcode = static_cast<Opcode>(bytes_.take(1)[0]);
    switch (opcode) {
      case Opcode::proto:
        // torch.save() writes protocol 2; the opcodes below are those that it uses there. In protocol 3 only
        // bytes differ.
        if (const std::uint64_t protocol = bytes_.number(1); protocol != 2 && protocol != 3) {
          refuse("it has another protocol than 2; in Python, save it without pickle_protocol");
        }
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
      case Opcode::no:
        push(constant(Kind::boolean, opcode == Opcode::yes ? 1 : 0));
        break;
      case Opcode::bin_int1:
      case Opcode::bin_int2:
        push_integer(static_cast<std::int64_t>(bytes_.number(opcode == Opcode::bin_int1 ? 1 : 2)));
        break;
      case Opcode::bin_int:
        // The only one with a sign: BININT1 and BININT2 are unsigned.
        push_integer(static_cast<std::int32_t>(bytes_.number(4)));
        break;
      case Opcode::long1:
        push_integer(bytes_.integer());
        break;
      case Opcode::bin_float:
        push_real(bytes_.real());
        break;
      case Opcode::bin_unicode:
      case Opcode::short_bin_string:
        push_text(Kind::text, bytes_.take(bytes_.number(opcode == Opcode::bin_unicode ? 4 : 1)));
        break;
      case Opcode::empty_set:
        push(constant(Kind::opaque, 0));
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
      case Opcode::tuple2:
      case Opcode::tuple3:
        push_tuple(opcode == Opcode::tuple1 ? 1 : opcode == Opcode::tuple2 ? 2 : 3);
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
      case Opcode::long_bin_put:
        remember(bytes_.number(opcode == Opcode::bin_put ? 1 : 4));
        break;
      case Opcode::bin_get:
      case Opcode::long_bin_get:
        recall(bytes_.number(opcode == Opcode::bin_get ? 1 : 4));
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

  std::size_t size_;
  PickleBytes bytes_;
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
