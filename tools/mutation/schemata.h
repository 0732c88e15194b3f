// A program that holds every mutant: an expression of a mutated file calls one of these, which
// takes the original or, where MUTANT in the environment names it, a mutant (cpp_schemata.py).
// What the compiler evaluates is always the original.
#pragma once

#include <sys/resource.h>
#include <sys/time.h>

#include <cstdlib>
#include <type_traits>

namespace mutation {

// Ends a process that takes MUTANT_MICROSECONDS of a processor (SIGPROF), or a lot of memory.
inline void limit_process() {
  constexpr rlim_t kBytes = rlim_t{6} << 30;
  [[maybe_unused]] const rlimit memory{kBytes, kBytes};
  const rlimit none{0, 0};
#if !defined(__SANITIZE_ADDRESS__)
  setrlimit(RLIMIT_AS, &memory);
#endif
  setrlimit(RLIMIT_CORE, &none);
  if (const char* text = std::getenv("MUTANT_MICROSECONDS")) {
    const long time = std::atol(text);
    const itimerval once{{0, 0}, {time / 1000000, time % 1000000}};
    setitimer(ITIMER_PROF, &once, nullptr);
  }
}

inline const int active = [] {
  limit_process();
  const char* number = std::getenv("MUTANT");
  return number == nullptr ? -1 : std::atoi(number);
}();

#define MUTATION_INLINE [[gnu::always_inline]] constexpr

template <int kId>
MUTATION_INLINE bool on() {
  return !std::is_constant_evaluated() && active == kId;
}

// What mutant kId puts in an expression's place.
template <int kId, typename Operation>
struct Case {};
template <typename... Each>
struct Cases {};

// The original's type is the result's. A mutant that does not compile is the original.
template <typename Result, typename Operation, typename... Operands>
MUTATION_INLINE void take(Result& result, Operation operation, Operands&... operands) {
  if constexpr (requires { static_cast<Result>(operation(operands...)); }) {
    result = static_cast<Result>(operation(operands...));
  }
}

template <typename Original, typename... Operations, int... kIds, typename... Operands>
MUTATION_INLINE auto evaluate(Original original, Cases<Case<kIds, Operations>...>,
                              Operands&... operands) {
  auto result = original(operands...);
  (void)((on<kIds>() && (take(result, Operations{}, operands...), true)) || ...);
  return result;
}
template <typename Original, typename Others, typename... Operands>
MUTATION_INLINE auto operation(Operands&&... operands) {
  return evaluate(Original{}, Others{}, operands...);
}

template <typename Original, typename... Operations, int... kIds, typename L, typename R>
MUTATION_INLINE L& assign_one(Original, Cases<Case<kIds, Operations>...>, L& l, const R& r) {
  // Not const: the compiler would evaluate its initializer, and so leave every mutant out.
  bool replaced = ((on<kIds>() && (Operations::assign(l, r), true)) || ...);
  if (!replaced) Original::assign(l, r);
  return l;
}
template <typename Original, typename Others, typename L, typename R>
MUTATION_INLINE L& assign(L& l, const R& r) {
  return assign_one(Original{}, Others{}, l, r);
}

template <int kId, bool kIncrement, typename T>
MUTATION_INLINE T& prefix(T& x) {
  return on<kId>() == kIncrement ? --x : ++x;
}
template <int kId, bool kIncrement, typename T>
MUTATION_INLINE T postfix(T& x) {
  return on<kId>() == kIncrement ? x-- : x++;
}

template <int... kIds, typename T, typename... Others>
MUTATION_INLINE T constant(T original, Others... others) {
  (void)((on<kIds>() && (original = static_cast<T>(others), true)) || ...);
  return original;
}

// For a table: what is no constant expression is read when the program runs.
template <int... kIds, typename T, typename... Others>
[[gnu::always_inline]] inline T late_constant(T original, Others... others) {
  return constant<kIds...>(original, others...);
}

// The right operand is a function: it may not be evaluated.
template <int kId, bool kAnd, typename R>
MUTATION_INLINE bool logical(bool left, const R& right) {
  return on<kId>() == kAnd ? left || right() : left && right();
}

template <int kId>
MUTATION_INLINE bool condition(bool x) {
  return on<kId>() != x;
}

#define MUTATION_OPERATOR(name, op)                                         \
  struct name {                                                             \
    template <typename L, typename R>                                       \
    MUTATION_INLINE auto operator()(L& l, R& r) const -> decltype(l op r) { \
      return l op r;                                                        \
    }                                                                       \
  };
MUTATION_OPERATOR(Plus, +)
MUTATION_OPERATOR(Minus, -)
MUTATION_OPERATOR(Times, *)
MUTATION_OPERATOR(Over, /)
MUTATION_OPERATOR(Modulo, %)
MUTATION_OPERATOR(ShiftLeft, <<)
MUTATION_OPERATOR(ShiftRight, >>)
MUTATION_OPERATOR(And, &)
MUTATION_OPERATOR(Or, |)
MUTATION_OPERATOR(Xor, ^)
MUTATION_OPERATOR(Less, <)
MUTATION_OPERATOR(LessEqual, <=)
MUTATION_OPERATOR(Greater, >)
MUTATION_OPERATOR(GreaterEqual, >=)
MUTATION_OPERATOR(Equal, ==)
MUTATION_OPERATOR(NotEqual, !=)

#define MUTATION_ASSIGNMENT(name, op)                      \
  struct name {                                            \
    template <typename L, typename R>                      \
    MUTATION_INLINE static void assign(L& l, const R& r) { \
      if constexpr (requires { l op r; }) l op r;          \
    }                                                      \
  };
MUTATION_ASSIGNMENT(AssignPlus, +=)
MUTATION_ASSIGNMENT(AssignMinus, -=)
MUTATION_ASSIGNMENT(AssignTimes, *=)
MUTATION_ASSIGNMENT(AssignOver, /=)
MUTATION_ASSIGNMENT(AssignModulo, %=)
MUTATION_ASSIGNMENT(AssignShiftLeft, <<=)
MUTATION_ASSIGNMENT(AssignShiftRight, >>=)
MUTATION_ASSIGNMENT(AssignAnd, &=)
MUTATION_ASSIGNMENT(AssignOr, |=)
MUTATION_ASSIGNMENT(AssignXor, ^=)

#define MUTATION_UNARY(name, op)                                    \
  struct name {                                                     \
    template <typename T>                                           \
    MUTATION_INLINE auto operator()(T& x) const -> decltype(op x) { \
      return op x;                                                  \
    }                                                               \
  };
MUTATION_UNARY(Not, !)
MUTATION_UNARY(Negate, -)
MUTATION_UNARY(Complement, ~)
struct Same {
  template <typename T>
  MUTATION_INLINE T& operator()(T& x) const {
    return x;
  }
};

#undef MUTATION_OPERATOR
#undef MUTATION_ASSIGNMENT
#undef MUTATION_UNARY

}  // namespace mutation
