// Angles, cosines and sines as exact as f32 is: WGSL's own functions may be wrong by 2^-11.

// An angle less whole turns: between 0 and 2 pi. The turn has two parts, the first so short that its small multiples are exact.
fn less_turns(angle: f32) -> f32 {
    let turns = floor(angle * 0.15915494309189535);
    return max((angle - turns * 6.28125) - turns * 0.0019353071795864769, 0.0);
}

// Cosine and sine of an angle of a few turns at most: of what is left beside quarters, by their series.
fn cos_sin(angle: f32) -> vec2<f32> {
    let quarters = round(angle * 0.6366197723675814);
    let r = (angle - quarters * 1.5703125) - quarters * 4.838267948966192e-4;
    let s = r * r;
    let sine = r + r * s * (-1.6666667e-1 + s * (8.3333333e-3 + s * (-1.9841270e-4 + s * 2.7557319e-6)));
    let cosine = 1.0 - 0.5 * s + s * s * (4.1666667e-2 + s * (-1.3888889e-3 + s * (2.4801587e-5 - s * 2.7557319e-7)));
    let which = bitcast<u32>(i32(quarters)) & 3u;
    let turned = select(vec2(cosine, sine), vec2(sine, cosine), (which & 1u) == 1u);
    return turned * vec2(select(1.0, -1.0, which == 1u || which == 2u), select(1.0, -1.0, which >= 2u));
}

// Cosine and sine, and the cosine less one with all its digits where the angle is small: -2 sin² of half of it.
fn cos_sin_less(angle: f32) -> vec3<f32> {
    let half = cos_sin(0.5 * angle);
    let less = -2.0 * half.y * half.y;
    return vec3<f32>(1.0 + less, 2.0 * half.x * half.y, less);
}
