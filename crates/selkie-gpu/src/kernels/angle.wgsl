// Cosine and sine of any angle, and the cosine less one; the language's own may be off by 2^-11.

// The angle, less the whole turns in it, which are taken off by two parts of 2 pi, of which the first has few digits.
fn within_turn(angle: f32) -> f32 {
    let turns = round(angle * 0.15915494309189535);
    return (angle - turns * 6.28125) - turns * 0.0019353071795864769;
}

// From half the angle, so that cos - 1 = -2 sin² keeps its digits where the angle is small.
fn cos_sin_less(angle: f32) -> vec3<f32> {
    let h = 0.5 * within_turn(angle);
    let s = h * h;
    let sine = h * (1.0 + s * (-1.6666667e-1 + s * (8.333333e-3 + s * (-1.9841270e-4
        + s * (2.7557319e-6 + s * (-2.5052108e-8 + s * 1.6059044e-10))))));
    let cosine = 1.0 + s * (-0.5 + s * (4.1666667e-2 + s * (-1.3888889e-3
        + s * (2.4801587e-5 + s * (-2.7557319e-7 + s * 2.0876757e-9)))));
    let less = -2.0 * sine * sine;
    return vec3<f32>(1.0 + less, 2.0 * sine * cosine, less);
}

fn cos_sin(angle: f32) -> vec2<f32> {
    return cos_sin_less(angle).xy;
}

// e^x - 1.
fn less_one(x: f32) -> f32 {
    let small = x * (1.0 + x / 2.0 * (1.0 + x / 3.0 * (1.0 + x / 4.0 * (1.0 + x / 5.0 * (1.0 + x / 6.0)))));
    return select(exp(x) - 1.0, small, abs(x) < 0.3);
}
