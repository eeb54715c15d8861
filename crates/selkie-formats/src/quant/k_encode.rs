//! Encoding the K formats; see [`k`](super::k) for where things lie.

use super::{
    encode::{Overflow, half},
    search::{affine, inverse, quantise, symmetric},
};

/// `Q4_K`.
pub fn q4_k(values: &[f32; 256], out: &mut [u8; 144]) -> Result<(), Overflow> {
    let (head, q) = sub_blocks(values, 15.0, -1.0, 20)?;
    let (stored_head, nibbles) = split::<16, 128, 144>(out);
    *stored_head = head;
    put_nibbles(&q, nibbles);
    Ok(())
}

/// `Q5_K`.
pub fn q5_k(values: &[f32; 256], out: &mut [u8; 176]) -> Result<(), Overflow> {
    let (head, q) = sub_blocks(values, 31.0, -0.5, 15)?;
    let (stored_head, rest) = split::<16, 160, 176>(out);
    let (fifth, nibbles) = split::<32, 128, 160>(rest);
    *stored_head = head;
    *fifth = [0; 32];
    for (sub, q) in q.as_chunks::<32>().0.iter().enumerate() {
        for (fifth, &q) in fifth.iter_mut().zip(q) {
            *fifth |= (q >> 4) << sub;
        }
    }
    put_nibbles(&q, nibbles);
    Ok(())
}

/// `Q6_K`.
pub fn q6_k(values: &[f32; 256], out: &mut [u8; 210]) -> Result<(), Overflow> {
    const LOW: f32 = -32.0;
    let (subs, _) = values.as_chunks::<16>();
    let mut scales = [0.0f32; 16];
    for (scale, values) in scales.iter_mut().zip(subs) {
        // Large values count more: their products do, too.
        *scale = symmetric(values, &values.map(|x| x * x), LOW);
    }
    let extreme = scales.iter().fold(0.0f32, |most, &scale| if scale.abs() > most.abs() { scale } else { most });
    let (stored_d, d) = half(extreme / -128.0)?;
    let scales = scales.map(|scale| quantise(scale, inverse(d), -128.0, 127.0) as i8);

    let mut q = [0u8; 256];
    for ((q, values), &scale) in q.as_chunks_mut::<16>().0.iter_mut().zip(subs).zip(&scales) {
        let inverse = inverse(d * f32::from(scale));
        *q = values.map(|x| (quantise(x, inverse, LOW, -LOW - 1.0) - LOW) as u8);
    }
    let (low, rest) = split::<128, 82, 210>(out);
    let (high, rest) = split::<64, 18, 82>(rest);
    let (stored_scales, stored) = split::<16, 2, 18>(rest);
    let parts = q.as_chunks::<128>().0.iter();
    for ((q, low), high) in parts.zip(low.as_chunks_mut::<64>().0).zip(high.as_chunks_mut::<32>().0) {
        for (l, low) in low.iter_mut().enumerate() {
            *low = q[l] & 15 | (q[l + 64] & 15) << 4;
        }
        for (l, high) in high.iter_mut().enumerate() {
            *high = q[l] >> 4 | (q[l + 32] >> 4) << 2 | (q[l + 64] >> 4) << 4 | (q[l + 96] >> 4) << 6;
        }
    }
    *stored_scales = scales.map(|scale| scale as u8);
    *stored = stored_d;
    Ok(())
}

/// What `Q4_K` and `Q5_K` share: the first 16 bytes (scale, scale of the minima, 6-bit scales and minima), and the
/// integers up to `high`. Scales are searched in `steps` tenths from `high + from` on.
fn sub_blocks(values: &[f32; 256], high: f32, from: f32, steps: u8) -> Result<([u8; 16], [u8; 256]), Overflow> {
    let (subs, _) = values.as_chunks::<32>();
    let mut scales = [0.0f32; 8];
    let mut mins = [0.0f32; 8];
    for ((scale, min), values) in scales.iter_mut().zip(&mut mins).zip(subs) {
        // Large values count more, but small ones do count.
        let mean = (values.iter().map(|x| x * x).sum::<f32>() / 32.0).sqrt();
        let weights = values.map(|x| mean + x.abs());
        let candidates = (0..=steps).map(|step| from + 0.1 * f32::from(step));
        let (d, m) = affine(values, &weights, high, candidates, true);
        (*scale, *min) = (d, -m);
    }
    let largest = |values: &[f32; 8]| values.iter().copied().fold(0.0, f32::max);
    let (stored_d, d) = half(largest(&scales) / 63.0)?;
    let (stored_dmin, dmin) = half(largest(&mins) / 63.0)?;
    let scales = scales.map(|scale| quantise(scale, inverse(d), 0.0, 63.0) as u8);
    let mins = mins.map(|min| quantise(min, inverse(dmin), 0.0, 63.0) as u8);

    let mut q = [0u8; 256];
    for (sub, (q, values)) in q.as_chunks_mut::<32>().0.iter_mut().zip(subs).enumerate() {
        let inverse = inverse(d * f32::from(scales[sub]));
        let min = dmin * f32::from(mins[sub]);
        *q = values.map(|x| quantise(x + min, inverse, 0.0, high) as u8);
    }
    let mut head = [0; 16];
    let (halves, packed) = split::<4, 12, 16>(&mut head);
    (halves[..2]).copy_from_slice(&stored_d);
    (halves[2..]).copy_from_slice(&stored_dmin);
    *packed = pack_scales(&scales, &mins);
    Ok((head, q))
}

/// Eight 6-bit scales and minima in twelve bytes; the way back is [`scale_and_min`](super::k::scale_and_min).
fn pack_scales(scales: &[u8; 8], mins: &[u8; 8]) -> [u8; 12] {
    let mut packed = [0; 12];
    for at in 0..4 {
        let (scale, min) = (scales[at + 4], mins[at + 4]);
        packed[at] = scales[at] | (scale >> 4) << 6;
        packed[at + 4] = mins[at] | (min >> 4) << 6;
        packed[at + 8] = scale & 15 | (min & 15) << 4;
    }
    packed
}

/// The low four bits: of 64 values, the first 32 below, the next 32 above.
fn put_nibbles(q: &[u8; 256], out: &mut [u8; 128]) {
    for (q, out) in q.as_chunks::<64>().0.iter().zip(out.as_chunks_mut::<32>().0) {
        for (l, out) in out.iter_mut().enumerate() {
            *out = q[l] & 15 | (q[l + 32] & 15) << 4;
        }
    }
}

/// An array's first `A` and last `B` bytes, which are all of it.
fn split<const A: usize, const B: usize, const ALL: usize>(all: &mut [u8; ALL]) -> (&mut [u8; A], &mut [u8; B]) {
    const { assert!(A + B == ALL) };
    match all.split_first_chunk_mut() {
        Some((first, rest)) => match rest.first_chunk_mut() {
            Some(rest) => (first, rest),
            None => unreachable!(),
        },
        None => unreachable!(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::k::scale_and_min;

    #[test]
    fn scales_come_back() {
        let scales = [0, 63, 1, 32, 17, 63, 48, 5];
        let mins = [63, 0, 2, 31, 16, 62, 15, 33];
        let packed = super::pack_scales(&scales, &mins);
        for sub in 0..8 {
            assert_eq!(scale_and_min(&packed, sub), (scales[sub], mins[sub]));
        }
    }
}
