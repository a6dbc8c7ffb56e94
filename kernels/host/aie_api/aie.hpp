// Stands in for <aie_api/aie.hpp> when a microkernel is compiled for target sim.
//
// It has the subset of the AIE API that int8 and 2-bit microkernels on AIE2P need, with the semantics of that part
// (aie_api, include/aie_api/detail/aie2p; Peano's aie2p headers). What the array does silently wrong is reported here:
// misaligned loads and stores, a shift in to_vector<int32>, an accumulator read before it is set. Shapes and lane
// counts that the part does not have do not compile.

#ifndef ELFKILN_HOST_AIE_HPP
#define ELFKILN_HOST_AIE_HPP

#include <stdint.h>

#include <type_traits>
#include <utility>

#include "kernel_interface.h"

using int8 = int8_t;
using uint8 = uint8_t;
using int16 = int16_t;
using uint16 = uint16_t;
using int32 = int32_t;
using uint32 = uint32_t;

// Accumulator tags, and the element types of two lanes a byte: names only, as on the device.
struct acc32 {};
struct acc64 {};
struct accauto {};
struct int4 {};
struct uint4 {};

// Core trace events.
inline void event0() {}
inline void event1() {}

namespace aie {

inline constexpr unsigned vector_decl_align = 64;

enum class saturation_mode : unsigned { none = 0, saturate = 1, symmetric = 3 };

enum class rounding_mode : unsigned {
    floor = 0,
    ceil = 1,
    symmetric_floor = 2,
    symmetric_ceil = 3,
    negative_inf = 8,
    positive_inf = 9,
    symmetric_zero = 10,
    symmetric_inf = 11,
    conv_even = 12,
    conv_odd = 13,
};

// The control registers belong to the core: what a kernel sets stays set for the next call on that core.
inline void set_rounding(rounding_mode mode) { elfkiln_modes_now->rounding = static_cast<unsigned>(mode); }
inline rounding_mode get_rounding() { return static_cast<rounding_mode>(elfkiln_modes_now->rounding); }
inline rounding_mode swap_rounding(rounding_mode mode) {
    const rounding_mode old = get_rounding();
    set_rounding(mode);
    return old;
}
inline void set_saturation(saturation_mode mode) { elfkiln_modes_now->saturation = static_cast<unsigned>(mode); }
inline saturation_mode get_saturation() { return static_cast<saturation_mode>(elfkiln_modes_now->saturation); }
inline saturation_mode swap_saturation(saturation_mode mode) {
    const saturation_mode old = get_saturation();
    set_saturation(mode);
    return old;
}

namespace detail {

template <typename T>
inline constexpr bool is_nibble_v = std::is_same_v<T, int4> || std::is_same_v<T, uint4>;

template <typename T>
inline constexpr bool is_element_v = std::is_same_v<T, int8> || std::is_same_v<T, uint8> || std::is_same_v<T, int16> ||
                                     std::is_same_v<T, uint16> || std::is_same_v<T, int32> || std::is_same_v<T, uint32> ||
                                     is_nibble_v<T>;

template <typename T>
inline constexpr unsigned bits_v = is_nibble_v<T> ? 4 : 8 * sizeof(T);

// How the host keeps a lane: two nibbles share a byte, every other type is itself.
template <typename T>
using storage_t = std::conditional_t<is_nibble_v<T>, uint8, T>;

template <typename T>
using wide_t = std::conditional_t<std::is_same_v<T, int8>, int16, uint16>;

// Registers have 128 to 1024 bits; the 8 x 8 block of int32 that mmul takes and gives is four 512-bit ones.
template <typename T, unsigned N>
inline constexpr bool is_legal_v = is_element_v<T> && N != 0 && (N & (N - 1)) == 0 && bits_v<T> * N >= 128 &&
                                   (bits_v<T> * N <= 1024 || (bits_v<T> == 32 && N <= 64));

template <typename T, unsigned Bytes>
struct native {
    typedef T type __attribute__((vector_size(Bytes)));
};

template <typename T, unsigned N>
inline constexpr unsigned bytes_v = bits_v<T> * N / 8;

template <typename T, unsigned N>
using native_t = typename native<storage_t<T>, bytes_v<T, N>>::type;

// Accumulators have 256 to 4096 bits: 8 to 128 lanes of 32, 4 to 64 of 64 (aie_api, table of accumulator sizes).
template <typename Tag, unsigned N>
inline constexpr bool is_legal_accum_v =
    (N & (N - 1)) == 0 && (std::is_same_v<Tag, acc32> ? N >= 8 && N <= 128 : N >= 4 && N <= 64);

// The one way to the lanes of a vector or accumulator: on the device they are registers, which no kernel can address.
struct access {
    template <typename V>
    static auto &lanes(V &v) {
        return v.lanes_;
    }
    template <typename V, typename Lanes>
    static V make(const Lanes &lanes) {
        return V(lanes);
    }
};

template <typename V>
inline auto &lanes(V &v) {
    return access::lanes(v);
}
template <typename V, typename Lanes>
inline V make(const Lanes &lanes) {
    return access::make<V>(lanes);
}

inline void require(bool holds, const char *what) {
    if (!holds) [[unlikely]]
        elfkiln_violation(what);
}

// Shifts right by `shift`, rounding as the core's register says.
inline int64_t round_shift(int64_t value, int shift, rounding_mode mode) {
    if (shift == 0)
        return value;
    const int64_t down = value >> shift;
    const int64_t rest = value - (int64_t(uint64_t(down) << shift));
    if (rest == 0)
        return down;
    const int64_t half = int64_t(1) << (shift - 1);
    const int64_t up = down + 1;
    switch (mode) {
    case rounding_mode::floor:
        return down;
    case rounding_mode::ceil:
        return up;
    case rounding_mode::symmetric_floor:
        return value < 0 ? up : down;
    case rounding_mode::symmetric_ceil:
        return value < 0 ? down : up;
    default:
        break;
    }
    if (rest != half)
        return rest < half ? down : up;
    switch (mode) {
    case rounding_mode::negative_inf:
        return down;
    case rounding_mode::positive_inf:
        return up;
    case rounding_mode::symmetric_zero:
        return value < 0 ? up : down;
    case rounding_mode::symmetric_inf:
        return value < 0 ? down : up;
    case rounding_mode::conv_even:
        return down & 1 ? up : down;
    case rounding_mode::conv_odd:
        return down & 1 ? down : up;
    default:
        elfkiln_violation("the rounding register holds a number that is no rounding mode");
    }
}

// Brings a value into the range of T, as the core's saturation register says.
template <typename T>
inline T saturate_to(int64_t value, saturation_mode mode) {
    constexpr bool is_signed = std::is_signed_v<T>;
    constexpr int64_t most = is_signed ? (int64_t(1) << (8 * sizeof(T) - 1)) - 1 : (int64_t(1) << 8 * sizeof(T)) - 1;
    const int64_t least = !is_signed ? 0 : mode == saturation_mode::symmetric ? -most : -most - 1;
    switch (mode) {
    case saturation_mode::none:
        return static_cast<T>(value);
    case saturation_mode::saturate:
    case saturation_mode::symmetric:
        return static_cast<T>(value < least ? least : value > most ? most : value);
    }
    elfkiln_violation("the saturation register holds a number that is no saturation mode");
}

template <typename T>
inline T shift_round_saturate(int64_t value, int shift) {
    return saturate_to<T>(round_shift(value, shift, get_rounding()), get_saturation());
}

inline void require_shift(int shift, int most, const char *what) { require(shift >= 0 && shift <= most, what); }

} // namespace detail

template <unsigned N>
class mask {
    static_assert(N >= 4 && (N & (N - 1)) == 0 && N <= 128, "aie::mask: lanes are a power of two from 4 to 128");

  public:
    static constexpr unsigned size() { return N; }

    // One word of 64 lanes at a time, lane 0 in bit 0 of the first.
    template <typename... Words>
    static mask from_uint64(Words... words) {
        static_assert(sizeof...(Words) == (N + 63) / 64, "aie::mask: one 64-bit word for every 64 lanes");
        mask result;
        unsigned at = 0;
        ((result.words_[at++] = static_cast<uint64_t>(words)), ...);
        result.trim();
        return result;
    }

    bool test(unsigned lane) const {
        detail::require(lane < N, "aie::mask::test: no such lane");
        return words_[lane / 64] >> lane % 64 & 1;
    }
    void set(unsigned lane) {
        detail::require(lane < N, "aie::mask::set: no such lane");
        words_[lane / 64] |= uint64_t(1) << lane % 64;
    }

    mask operator~() const {
        mask result;
        for (unsigned i = 0; i < WORDS; ++i)
            result.words_[i] = ~words_[i];
        result.trim();
        return result;
    }
    mask operator&(const mask &other) const {
        mask result;
        for (unsigned i = 0; i < WORDS; ++i)
            result.words_[i] = words_[i] & other.words_[i];
        return result;
    }
    mask operator|(const mask &other) const {
        mask result;
        for (unsigned i = 0; i < WORDS; ++i)
            result.words_[i] = words_[i] | other.words_[i];
        return result;
    }

  private:
    static constexpr unsigned WORDS = (N + 63) / 64;

    void trim() {
        if constexpr (N % 64 != 0)
            words_[0] &= (uint64_t(1) << N) - 1;
    }

    uint64_t words_[WORDS] = {};
};

template <typename T, unsigned N>
class vector {
    static_assert(detail::is_legal_v<T, N>, "aie::vector: AIE2P has no register of so many lanes of this type");

    static constexpr unsigned BYTES = detail::bytes_v<T, N>;
    using storage = detail::storage_t<T>;

  public:
    using value_type = T;

    vector() = default;

    static constexpr unsigned size() { return N; }
    static constexpr unsigned bits() { return 8 * BYTES; }

    storage operator[](unsigned lane) const {
        static_assert(!detail::is_nibble_v<T>, "aie::vector: lanes of half a byte have no value of their own; unpack");
        detail::require(lane < N, "aie::vector: no such lane");
        return lanes_[lane];
    }
    void set(storage value, unsigned lane) {
        static_assert(!detail::is_nibble_v<T>, "aie::vector: lanes of half a byte have no value of their own; pack");
        detail::require(lane < N, "aie::vector::set: no such lane");
        lanes_[lane] = value;
    }
    storage get(unsigned lane) const { return (*this)[lane]; }

    // Part `index` of N / M.
    template <unsigned M>
    vector<T, M> extract(unsigned index) const {
        static_assert(M <= N, "aie::vector::extract: a part is no larger than the whole");
        detail::require(index < N / M, "aie::vector::extract: no such part");
        vector<T, M> part;
        __builtin_memcpy(&detail::lanes(part), reinterpret_cast<const char *>(&lanes_) + index * detail::bytes_v<T, M>,
                         detail::bytes_v<T, M>);
        return part;
    }
    template <unsigned M>
    vector &insert(unsigned index, const vector<T, M> &part) {
        static_assert(M <= N, "aie::vector::insert: a part is no larger than the whole");
        detail::require(index < N / M, "aie::vector::insert: no such part");
        __builtin_memcpy(reinterpret_cast<char *>(&lanes_) + index * detail::bytes_v<T, M>, &detail::lanes(part),
                         detail::bytes_v<T, M>);
        return *this;
    }
    // The lanes above are undefined on the device; here they are zero.
    template <unsigned M>
    vector<T, M> grow(unsigned index = 0) const {
        static_assert(M >= N, "aie::vector::grow: expected more lanes");
        vector<T, M> whole;
        whole.template insert<N>(index, *this);
        return whole;
    }
    template <unsigned M>
    vector<T, M> grow_replicate() const {
        static_assert(M >= N, "aie::vector::grow_replicate: expected more lanes");
        vector<T, M> whole;
        for (unsigned i = 0; i < M / N; ++i)
            whole.template insert<N>(i, *this);
        return whole;
    }
    template <typename U>
    vector<U, BYTES * 8 / detail::bits_v<U>> cast_to() const {
        vector<U, BYTES * 8 / detail::bits_v<U>> result;
        __builtin_memcpy(&detail::lanes(result), &lanes_, BYTES);
        return result;
    }

    // Lane 2i is the low half of a byte, lane 2i + 1 the high half.
    auto unpack() const {
        if constexpr (detail::is_nibble_v<T>) {
            using U = std::conditional_t<std::is_same_v<T, int4>, int8, uint8>;
            vector<U, N> result;
            for (unsigned i = 0; i < N; ++i) {
                const unsigned half = lanes_[i / 2] >> 4 * (i % 2) & 15;
                detail::lanes(result)[i] = static_cast<U>(std::is_same_v<T, int4> && half > 7 ? half - 16 : half);
            }
            return result;
        } else {
            static_assert(sizeof(T) == 1, "aie::vector::unpack: from 4 or 8 bits");
            using U = detail::wide_t<T>;
            return detail::make<vector<U, N>>(__builtin_convertvector(lanes_, detail::native_t<U, N>));
        }
    }
    // The inverse; values that do not fit go by the saturation register.
    auto pack() const {
        static_assert(sizeof(T) <= 2 && !detail::is_nibble_v<T>, "aie::vector::pack: from 8 or 16 bits");
        if constexpr (sizeof(T) == 2) {
            using U = std::conditional_t<std::is_signed_v<T>, int8, uint8>;
            vector<U, N> result;
            for (unsigned i = 0; i < N; ++i)
                detail::lanes(result)[i] = detail::saturate_to<U>(lanes_[i], get_saturation());
            return result;
        } else {
            using U = std::conditional_t<std::is_signed_v<T>, int4, uint4>;
            constexpr int most = std::is_signed_v<T> ? 7 : 15;
            const saturation_mode mode = get_saturation();
            const int least = !std::is_signed_v<T> ? 0 : mode == saturation_mode::symmetric ? -most : -most - 1;
            vector<U, N> result;
            for (unsigned i = 0; i < N; ++i) {
                int value = lanes_[i];
                if (mode != saturation_mode::none)
                    value = value < least ? least : value > most ? most : value;
                detail::lanes(result)[i / 2] |= static_cast<uint8>((value & 15) << 4 * (i % 2));
            }
            return result;
        }
    }

  private:
    friend detail::access;

    explicit vector(const detail::native_t<T, N> &lanes) : lanes_(lanes) {}

    detail::native_t<T, N> lanes_ = {};
};

template <typename U, typename T, unsigned N>
auto vector_cast(const vector<T, N> &v) {
    return v.template cast_to<U>();
}

template <typename Tag, unsigned N>
class accum {
    static_assert(std::is_same_v<Tag, acc32> || std::is_same_v<Tag, acc64>, "aie::accum: acc32 or acc64");
    static_assert(detail::is_legal_accum_v<Tag, N>, "aie::accum: AIE2P has no accumulator of so many lanes");

    using value = std::conditional_t<std::is_same_v<Tag, acc32>, int32, int64_t>;
    using native = typename detail::native<value, N * sizeof(value)>::type;

  public:
    using value_type = Tag;

    accum() = default;
    template <typename T>
    explicit accum(const vector<T, N> &v, int up = 0) {
        from_vector(v, up);
    }

    static constexpr unsigned size() { return N; }

    template <typename T>
    void from_vector(const vector<T, N> &v, int up = 0) {
        if constexpr (sizeof(T) == 4 && std::is_same_v<Tag, acc32>)
            detail::require(up == 0, "aie::accum::from_vector: AIE2P ignores a shift from 32 bits to acc32");
        detail::require_shift(up, 31, "aie::accum::from_vector: the shift is not in 0..31");
        using unsigned_native = typename detail::native<std::make_unsigned_t<value>, sizeof(native)>::type;
        lanes_ = native(unsigned_native(__builtin_convertvector(detail::lanes(v), native)) << up);
    }

    template <typename T>
    vector<T, N> to_vector(int down = 0) const {
        if constexpr (sizeof(T) == 4 && std::is_same_v<Tag, acc32>) {
            detail::require(down == 0, "aie::accum::to_vector: AIE2P ignores a shift from acc32 to 32 bits");
            return detail::make<vector<T, N>>(__builtin_convertvector(lanes_, detail::native_t<T, N>));
        } else {
            detail::require_shift(down, 31, "aie::accum::to_vector: the shift is not in 0..31");
            vector<T, N> result;
            for (unsigned i = 0; i < N; ++i)
                detail::lanes(result)[i] = detail::shift_round_saturate<T>(lanes_[i], down);
            return result;
        }
    }

  private:
    friend detail::access;

    native lanes_ = {};
};

// Bytes a load or store must be aligned to: the register's own up to 512 bits.
namespace detail {
template <typename T, unsigned N>
inline constexpr unsigned alignment_v = bytes_v<T, N> < 64 ? bytes_v<T, N> : 64;
} // namespace detail

template <unsigned N, typename T>
inline vector<std::remove_cv_t<T>, N> load_v(T *from) {
    using V = vector<std::remove_cv_t<T>, N>;
    static_assert(!detail::is_nibble_v<std::remove_cv_t<T>>, "aie::load_v: an int4 pointer steps by whole bytes");
    detail::require(reinterpret_cast<uintptr_t>(from) % detail::alignment_v<std::remove_cv_t<T>, N> == 0,
                    "aie::load_v: the address is not aligned to the vector (16, 32 or 64 bytes)");
    V result;
    __builtin_memcpy(&detail::lanes(result), from, sizeof result);
    return result;
}

template <typename T, unsigned N>
inline T *store_v(T *to, const vector<T, N> &v) {
    static_assert(!detail::is_nibble_v<T>, "aie::store_v: an int4 pointer steps by whole bytes");
    detail::require(reinterpret_cast<uintptr_t>(to) % detail::alignment_v<T, N> == 0,
                    "aie::store_v: the address is not aligned to the vector (16, 32 or 64 bytes)");
    __builtin_memcpy(to, &detail::lanes(v), sizeof v);
    return to;
}

template <typename T, unsigned N>
inline auto zeros() {
    if constexpr (std::is_same_v<T, acc32> || std::is_same_v<T, acc64>)
        return accum<T, N>();
    else
        return vector<T, N>();
}

template <typename T, unsigned N>
inline vector<T, N> broadcast(detail::storage_t<T> value) {
    static_assert(!detail::is_nibble_v<T>, "aie::broadcast: at least 8 bits");
    return detail::make<vector<T, N>>(detail::native_t<T, N>{} + value);
}

template <typename T, unsigned N, typename... More>
inline auto concat(const vector<T, N> &first, const More &...more) {
    static_assert((std::is_same_v<More, vector<T, N>> && ...), "aie::concat: vectors of one type");
    vector<T, N *(1 + sizeof...(More))> whole;
    unsigned at = 0;
    whole.template insert<N>(at++, first);
    ((whole.template insert<N>(at++, more)), ...);
    return whole;
}

// Lane by lane. Sums and differences wrap, as the vector unit's do.
namespace detail {
template <typename T, unsigned N>
using unsigned_of = typename native<std::make_unsigned_t<T>, bytes_v<T, N>>::type;
} // namespace detail

template <typename T, unsigned N>
inline vector<T, N> add(const vector<T, N> &a, const vector<T, N> &b) {
    using U = detail::unsigned_of<T, N>;
    return detail::make<vector<T, N>>(detail::native_t<T, N>(U(detail::lanes(a)) + U(detail::lanes(b))));
}

template <typename T, unsigned N>
inline vector<T, N> sub(const vector<T, N> &a, const vector<T, N> &b) {
    using U = detail::unsigned_of<T, N>;
    return detail::make<vector<T, N>>(detail::native_t<T, N>(U(detail::lanes(a)) - U(detail::lanes(b))));
}

template <typename T, unsigned N>
inline vector<T, N> bit_and(const vector<T, N> &a, const vector<T, N> &b) {
    return detail::make<vector<T, N>>(detail::lanes(a) & detail::lanes(b));
}

template <typename T, unsigned N>
inline vector<T, N> bit_or(const vector<T, N> &a, const vector<T, N> &b) {
    return detail::make<vector<T, N>>(detail::lanes(a) | detail::lanes(b));
}

template <typename T, unsigned N>
inline vector<T, N> max(const vector<T, N> &a, const vector<T, N> &b) {
    static_assert(!detail::is_nibble_v<T>, "aie::max: at least 8 bits");
    return detail::make<vector<T, N>>(__builtin_elementwise_max(detail::lanes(a), detail::lanes(b)));
}

template <typename T, unsigned N>
inline vector<T, N> min(const vector<T, N> &a, const vector<T, N> &b) {
    static_assert(!detail::is_nibble_v<T>, "aie::min: at least 8 bits");
    return detail::make<vector<T, N>>(__builtin_elementwise_min(detail::lanes(a), detail::lanes(b)));
}

namespace detail {
template <typename T, unsigned N, typename Compare>
inline mask<N> compare(const vector<T, N> &a, const vector<T, N> &b, Compare holds) {
    mask<N> result;
    for (unsigned i = 0; i < N; ++i)
        if (holds(detail::lanes(a)[i], detail::lanes(b)[i]))
            result.set(i);
    return result;
}
} // namespace detail

template <typename T, unsigned N>
inline mask<N> lt(const vector<T, N> &a, const vector<T, N> &b) {
    return detail::compare(a, b, [](T x, T y) { return x < y; });
}

template <typename T, unsigned N>
inline mask<N> ge(const vector<T, N> &a, const vector<T, N> &b) {
    return detail::compare(a, b, [](T x, T y) { return x >= y; });
}

template <typename T, unsigned N>
inline mask<N> eq(const vector<T, N> &a, const vector<T, N> &b) {
    return detail::compare(a, b, [](T x, T y) { return x == y; });
}

// A set lane of the mask picks from `b`.
template <typename T, unsigned N>
inline vector<T, N> select(const vector<T, N> &a, const vector<T, N> &b, const mask<N> &m) {
    static_assert(!detail::is_nibble_v<T>, "aie::select: at least 8 bits");
    vector<T, N> result;
    for (unsigned i = 0; i < N; ++i)
        detail::lanes(result)[i] = m.test(i) ? detail::lanes(b)[i] : detail::lanes(a)[i];
    return result;
}

// Shifts go through an accumulator, so they round and saturate as the registers say; with the reset values (floor,
// none) downshift is >>, arithmetic or logical by the type's sign.
template <typename T, unsigned N>
inline vector<T, N> downshift(const vector<T, N> &v, unsigned shift) {
    detail::require_shift(int(shift), 31, "aie::downshift: the shift is not in 0..31");
    vector<T, N> result;
    for (unsigned i = 0; i < N; ++i)
        detail::lanes(result)[i] = detail::shift_round_saturate<T>(int64_t(detail::lanes(v)[i]), int(shift));
    return result;
}

template <typename T, unsigned N>
inline vector<T, N> upshift(const vector<T, N> &v, unsigned shift) {
    detail::require_shift(int(shift), 31, "aie::upshift: the shift is not in 0..31");
    vector<T, N> result;
    for (unsigned i = 0; i < N; ++i)
        detail::lanes(result)[i] = detail::saturate_to<T>(int64_t(uint64_t(int64_t(detail::lanes(v)[i])) << shift), get_saturation());
    return result;
}

template <typename TA, typename TB, unsigned N>
inline accum<acc32, N> mul(const vector<TA, N> &a, const vector<TB, N> &b) {
    static_assert(sizeof(TA) == 1 && sizeof(TB) == 1, "aie::mul: 8-bit lanes");
    accum<acc32, N> result;
    using native = typename detail::native<int32, 4 * N>::type;
    detail::lanes(result) =
        __builtin_convertvector(detail::lanes(a), native) * __builtin_convertvector(detail::lanes(b), native);
    return result;
}

// `v` is rows x columns, row by row; the result is columns x rows.
template <typename T, unsigned N>
inline vector<T, N> transpose(const vector<T, N> &v, unsigned rows, unsigned columns) {
    static_assert(!detail::is_nibble_v<T>, "aie::transpose: at least 8 bits");
    detail::require(rows * columns == N, "aie::transpose: rows times columns is not the number of lanes");
    vector<T, N> result;
    for (unsigned i = 0; i < rows; ++i)
        for (unsigned j = 0; j < columns; ++j)
            detail::lanes(result)[j * rows + i] = detail::lanes(v)[i * columns + j];
    return result;
}

namespace detail {
inline void require_chunk(unsigned chunk, unsigned lanes, const char *what) {
    require(chunk != 0 && (chunk & (chunk - 1)) == 0 && chunk <= lanes, what);
}
} // namespace detail

// Chunks of `a` and `b` in turn: the first vector is the lower half of that sequence, the second the upper.
template <typename T, unsigned N>
inline std::pair<vector<T, N>, vector<T, N>> interleave_zip(const vector<T, N> &a, const vector<T, N> &b,
                                                            unsigned chunk) {
    static_assert(!detail::is_nibble_v<T>, "aie::interleave_zip: at least 8 bits");
    detail::require_chunk(chunk, N, "aie::interleave_zip: the chunk is no power of two up to the number of lanes");
    std::pair<vector<T, N>, vector<T, N>> result;
    for (unsigned i = 0; i < 2 * N; ++i) {
        const unsigned lane = i / (2 * chunk) * chunk + i % chunk;
        const T value = i / chunk % 2 ? detail::lanes(b)[lane] : detail::lanes(a)[lane];
        detail::lanes(i < N ? result.first : result.second)[i % N] = value;
    }
    return result;
}

// The inverse: even chunks of `a` then `b` come first, odd ones second.
template <typename T, unsigned N>
inline std::pair<vector<T, N>, vector<T, N>> interleave_unzip(const vector<T, N> &a, const vector<T, N> &b,
                                                              unsigned chunk) {
    static_assert(!detail::is_nibble_v<T>, "aie::interleave_unzip: at least 8 bits");
    detail::require_chunk(chunk, N, "aie::interleave_unzip: the chunk is no power of two up to the number of lanes");
    std::pair<vector<T, N>, vector<T, N>> result;
    for (unsigned i = 0; i < 2 * N; ++i) {
        const unsigned lane = i / (2 * chunk) * chunk + i % chunk;
        const T value = i < N ? detail::lanes(a)[i] : detail::lanes(b)[i - N];
        detail::lanes(i / chunk % 2 ? result.second : result.first)[lane] = value;
    }
    return result;
}

// C (8 x 8) += A (8 x 8) * B (8 x 8), all row by row. AIE2P has one efficient shape, and its accumulators hold four.
template <unsigned M, unsigned K, unsigned N, typename TA, typename TB = TA, typename Tag = accauto>
class mmul {
    static_assert(M == 8 && K == 8 && N == 8, "aie::mmul: the efficient shape for 8-bit operands on AIE2P is 8x8x8");
    static_assert(std::is_same_v<TA, int8> || std::is_same_v<TA, uint8>, "aie::mmul: A is int8 or uint8");
    static_assert(std::is_same_v<TB, int8> || std::is_same_v<TB, uint8>, "aie::mmul: B is int8 or uint8");
    static_assert(std::is_same_v<Tag, accauto> || std::is_same_v<Tag, acc32>, "aie::mmul: acc32");

  public:
    static constexpr unsigned size_A = M * K;
    static constexpr unsigned size_B = K * N;
    static constexpr unsigned size_C = M * N;
    using accum_type = accum<acc32, size_C>;

    mmul() = default;
    mmul(const accum_type &value) : set_(true) { __builtin_memcpy(rows_, &detail::lanes(value), sizeof rows_); }
    template <typename T>
    mmul(const vector<T, size_C> &value, int shift = 0) : mmul(accum_type(value, shift)) {}

    void mul(const vector<TA, size_A> &a, const vector<TB, size_B> &b) {
        for (unsigned i = 0; i < M; ++i)
            rows_[i] = row{};
        accumulate(a, b);
        set_ = true;
    }

    // The first mac of a mmul that was not given a value is a mul.
    void mac(const vector<TA, size_A> &a, const vector<TB, size_B> &b) {
        accumulate(a, b);
        set_ = true;
    }

    accum_type to_accum() const {
        detail::require(set_, "aie::mmul: read before any mul, mac or value; its contents are undefined");
        accum_type result;
        __builtin_memcpy(&detail::lanes(result), rows_, sizeof rows_);
        return result;
    }
    template <typename T>
    vector<T, size_C> to_vector(int shift = 0) const {
        return to_accum().template to_vector<T>(shift);
    }

  private:
    typedef int32 row __attribute__((vector_size(32)));
    typedef uint32 unsigned_row __attribute__((vector_size(32)));
    typedef int16 pairs __attribute__((vector_size(32)));

    // Rows 2p and 2p + 1 of B side by side, in 16 bits: lane 2c is B[2p][c], lane 2c + 1 B[2p + 1][c].
    static pairs pair_rows(const vector<TB, size_B> &b, unsigned p) {
        typedef TB bytes __attribute__((vector_size(16)));
        bytes two;
        __builtin_memcpy(&two, reinterpret_cast<const char *>(&detail::lanes(b)) + 16 * p, 16);
        two = __builtin_shufflevector(two, two, 0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15);
        return __builtin_convertvector(two, pairs);
    }

    // Row i of A in 16 bits, twice: as 32-bit lanes, lane p (and p + 4) holds A[i][2p] and A[i][2p + 1].
    static row double_row(const vector<TA, size_A> &a, unsigned i) {
        typedef TA bytes __attribute__((vector_size(16)));
        typedef int64_t halves __attribute__((vector_size(16)));
        int64_t half;
        __builtin_memcpy(&half, reinterpret_cast<const char *>(&detail::lanes(a)) + 8 * i, 8);
        return row(__builtin_convertvector(bytes(halves{half, half}), pairs));
    }

    // Products of pairs, summed in 32 bits, which no 8-bit operands overflow; the accumulator wraps.
    static row multiply_pairs(row a, pairs b) {
#ifdef __AVX2__
        return row(__builtin_ia32_pmaddwd256(pairs(a), b));
#else
        row result;
        for (unsigned i = 0; i < 8; ++i)
            result[i] = pairs(a)[2 * i] * b[2 * i] + pairs(a)[2 * i + 1] * b[2 * i + 1];
        return result;
#endif
    }

    inline __attribute__((always_inline)) void accumulate(const vector<TA, size_A> &a, const vector<TB, size_B> &b) {
        const pairs b0 = pair_rows(b, 0), b1 = pair_rows(b, 1), b2 = pair_rows(b, 2), b3 = pair_rows(b, 3);
        for (unsigned i = 0; i < M; ++i) {
            const row two = double_row(a, i);
            unsigned_row sum = unsigned_row(rows_[i]);
            sum += unsigned_row(multiply_pairs(__builtin_shufflevector(two, two, 0, 0, 0, 0, 4, 4, 4, 4), b0));
            sum += unsigned_row(multiply_pairs(__builtin_shufflevector(two, two, 1, 1, 1, 1, 5, 5, 5, 5), b1));
            sum += unsigned_row(multiply_pairs(__builtin_shufflevector(two, two, 2, 2, 2, 2, 6, 6, 6, 6), b2));
            sum += unsigned_row(multiply_pairs(__builtin_shufflevector(two, two, 3, 3, 3, 3, 7, 7, 7, 7), b3));
            rows_[i] = row(sum);
        }
    }

    row rows_[M] = {};
    bool set_ = false;
};

} // namespace aie

#endif
