// A row is its values, filled up with zeros to a multiple of 8.

// Values 4 i .. 4 i + 4 of a row.
fn quad(row: u32, i: u32) -> vec4<f32> {
    return bitcast<vec4<f32>>(weights4[(row >> 2u) + i]);
}

// Values 8 i .. 8 i + 8 of a row.
struct Octet { lo: vec4<f32>, hi: vec4<f32> }
fn octet(row: u32, i: u32) -> Octet {
    return Octet(quad(row, 2u * i), quad(row, 2u * i + 1u));
}
