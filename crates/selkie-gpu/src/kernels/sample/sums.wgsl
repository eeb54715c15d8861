// How many tokens, and their mass in 2^-44 of the likeliest one's: whole numbers, so that the order of adding does not matter
// and kernels agree to the last bit.
struct Sum {
    count: u32,
    low: u32,
    high: u32,
}

fn plus(a: Sum, b: Sum) -> Sum {
    let low = a.low + b.low;
    return Sum(a.count + b.count, low, a.high + b.high + select(0u, 1u, low < a.low));
}

fn minus(a: Sum, b: Sum) -> Sum {
    return Sum(a.count - b.count, a.low - b.low, a.high - b.high - select(0u, 1u, a.low < b.low));
}

// Whether it has as many tokens as `aim`, or as much mass.
fn reaches(a: Sum, aim: Sum) -> bool {
    return a.count >= aim.count || a.high > aim.high || (a.high == aim.high && a.low >= aim.low);
}

// Low and high word.
fn product(a: u32, b: u32) -> vec2<u32> {
    let low = (a & 0xffffu) * (b & 0xffffu);
    let cross0 = (a >> 16u) * (b & 0xffffu);
    let cross1 = (a & 0xffffu) * (b >> 16u);
    let middle = (low >> 16u) + (cross0 & 0xffffu) + (cross1 & 0xffffu);
    return vec2<u32>(a * b, (a >> 16u) * (b >> 16u) + (cross0 >> 16u) + (cross1 >> 16u) + (middle >> 16u));
}

// The least mass that is `fraction` (in 2^-32) of the given one, and not nothing; no number of tokens is as many.
fn share(whole: Sum, fraction: u32) -> Sum {
    let a = product(whole.low, fraction);
    let b = product(whole.high, fraction);
    let mass = plus(Sum(0u, b.x, b.y), Sum(0u, a.y, 0u));
    return plus(mass, Sum(0xffffffffu, select(0u, 1u, a.x != 0u || (mass.low | mass.high) == 0u), 0u));
}

// A token's rank is how far the bits of its likelihood e (1 for the likeliest) are below those of 1: it grows as e falls.
const ONE = 0x3f800000u;
const RANK_BITS = 19u;
const BINS = 768u;

fn mass(rank: u32) -> Sum {
    let bits = ONE - rank;
    let mantissa = (bits & 0x7fffffu) | 0x800000u;
    let exponent = bits >> 23u;
    if exponent > 106u {
        let by = exponent - 106u;
        return Sum(1u, mantissa << by, mantissa >> (32u - by));
    }
    let by = 106u - exponent;
    return Sum(1u, (mantissa + ((1u << by) >> 1u)) >> by, 0u);
}
