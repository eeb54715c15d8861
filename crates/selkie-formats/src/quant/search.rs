//! Finding the scale of a block that loses least.
//!
//! Rounding makes the error a ragged function of the scale. So a few scales around the obvious one are tried; for the
//! integers that each gives, the best scale follows by least squares, and the one with the smallest error wins.

/// Below this a block counts as zero: no half-precision scale is so small.
const TINY: f32 = 1e-15;

/// Candidates lie a tenth of a step of the largest integer apart.
const STEP: f32 = 0.1;

/// The nearest integer, ties to even, for |`x`| below 2^22. Adding pushes the fraction out of the mantissa; unlike
/// [`f32::round`] this vectorises everywhere.
pub fn nearest(x: f32) -> f32 {
    const SHIFT: f32 = 12_582_912.0; // 1.5 * 2^23
    (x + SHIFT) - SHIFT
}

/// `1 / x`, or 0 for 0: values of a block without a scale become 0.
pub fn inverse(x: f32) -> f32 {
    if x == 0.0 { 0.0 } else { 1.0 / x }
}

/// `x * inverse` as an integer within `low..=high`.
pub fn quantise(x: f32, inverse: f32, low: f32, high: f32) -> f32 {
    nearest((x * inverse).clamp(low, high))
}

/// The scale `d` for which `d * q`, with integers `q` in `low..=-low - 1`, comes closest to `values`: the least sum of
/// weighted squares. Negative where the value of largest magnitude is positive, as `low` reaches further than its
/// opposite.
pub fn symmetric<const LEN: usize>(values: &[f32; LEN], weights: &[f32; LEN], low: f32) -> f32 {
    let extreme = values.iter().fold(0.0f32, |most, &x| if x.abs() > most.abs() { x } else { most });
    if extreme.abs() < TINY {
        return 0.0;
    }
    let (mut best, mut scale) = (0.0, extreme / low);
    for candidate in -9i8..=9 {
        let inverse = (low - STEP * f32::from(candidate)) / extreme;
        let q = values.map(|x| quantise(x, inverse, low, -low - 1.0));
        let dot = sum::<LEN>(|i| weights[i] * values[i] * q[i]);
        let norm = sum::<LEN>(|i| weights[i] * q[i] * q[i]);
        // The error is the values' own square less this.
        let gain = dot * dot / norm;
        if gain > best {
            (best, scale) = (gain, dot / norm);
        }
    }
    scale
}

/// The scale `d` and minimum `m` for which `d * q + m`, with integers `q` in `0..=high`, comes closest to `values`: the
/// least sum of weighted squares. Where `below_zero` is set, `m` is at most 0.
///
/// `candidates` are the offsets to `high` that are tried.
pub fn affine<const LEN: usize>(
    values: &[f32; LEN],
    weights: &[f32; LEN],
    high: f32,
    candidates: impl Iterator<Item = f32>,
    below_zero: bool,
) -> (f32, f32) {
    let top = values.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let bottom = values.iter().copied().fold(if below_zero { 0.0 } else { f32::INFINITY }, f32::min);
    let span = top - bottom;
    if span < TINY {
        return (0.0, bottom);
    }
    let mut found = (span / high, bottom);
    let mut least = f32::INFINITY;
    for candidate in candidates {
        let inverse = (high + candidate) / span;
        let q = values.map(|x| quantise(x - bottom, inverse, 0.0, high));
        // The line that fits these integers best moves some of them, and then another line fits better.
        let (d, m) = fit_line(&q, values, weights, below_zero);
        let q = values.map(|x| quantise(x - m, self::inverse(d), 0.0, high));
        let (d, m) = fit_line(&q, values, weights, below_zero);
        let error = sum::<LEN>(|i| {
            let off = d * q[i] + m - values[i];
            weights[i] * off * off
        });
        if error < least && d > 0.0 {
            (least, found) = (error, (d, m));
        }
    }
    found
}

/// The line `d * q + m` closest to `values`; (0, 0) where `q` are all alike.
fn fit_line<const LEN: usize>(
    q: &[f32; LEN],
    values: &[f32; LEN],
    weights: &[f32; LEN],
    below_zero: bool,
) -> (f32, f32) {
    let sum_w = sum::<LEN>(|i| weights[i]);
    let sum_q = sum::<LEN>(|i| weights[i] * q[i]);
    let sum_qq = sum::<LEN>(|i| weights[i] * q[i] * q[i]);
    let sum_x = sum::<LEN>(|i| weights[i] * values[i]);
    let sum_qx = sum::<LEN>(|i| weights[i] * q[i] * values[i]);
    let determinant = sum_w * sum_qq - sum_q * sum_q;
    if determinant <= 0.0 {
        return (0.0, 0.0);
    }
    let m = (sum_qq * sum_x - sum_q * sum_qx) / determinant;
    if below_zero && m > 0.0 {
        return (sum_qx / sum_qq, 0.0);
    }
    ((sum_w * sum_qx - sum_q * sum_x) / determinant, m)
}

/// The sum of `term(0..LEN)`, in eight interleaved parts: an order that vectorises, and is the same everywhere.
fn sum<const LEN: usize>(term: impl Fn(usize) -> f32) -> f32 {
    const LANES: usize = 8;
    const { assert!(LEN.is_multiple_of(LANES)) };
    let mut lanes = [0.0; LANES];
    for first in (0..LEN).step_by(LANES) {
        for (lane, sum) in lanes.iter_mut().enumerate() {
            *sum += term(first + lane);
        }
    }
    lanes.iter().sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_on_the_grid_is_found() {
        let values: [f32; 16] = std::array::from_fn(|i| (i as f32 - 8.0) * 0.5);
        assert_eq!(symmetric(&values, &[1.0; 16], -8.0), 0.5);
        let (d, m) = affine(&values, &[1.0; 16], 15.0, [0.0].into_iter(), false);
        assert!((d - 0.5).abs() < 1e-6 && (m + 4.0).abs() < 1e-6, "{d} {m}");
    }

    #[test]
    fn flat_blocks_have_no_scale() {
        assert_eq!(symmetric(&[0.0; 16], &[1.0; 16], -8.0), 0.0);
        assert_eq!(affine(&[3.0; 16], &[1.0; 16], 15.0, [0.0].into_iter(), false), (0.0, 3.0));
        assert_eq!(nearest(2.5), 2.0);
        assert_eq!(nearest(-3.7), -4.0);
    }
}
