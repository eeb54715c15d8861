//! How fast memory is read: what decoding can at most come to.

use std::hint::black_box;

use web_time::Instant;

use crate::Pool;

/// Bytes read at a time: more than caches hold. Less in a browser's tab, whose memory never shrinks.
const BYTES: usize = if cfg!(target_family = "wasm") { 64 << 20 } else { 256 << 20 };

/// Bytes a second that `threads` threads read, the best of a few rounds over a buffer larger than the caches.
pub fn read_bandwidth(threads: usize) -> f64 {
    let pool = Pool::new(threads);
    // Not zeros: the system may map those to one page.
    let words: Vec<u64> = (0..BYTES as u64 / 8).collect();
    let pieces = words.chunks(words.len().div_ceil(pool.threads())).collect::<Vec<_>>();
    (0..4)
        .map(|_| {
            let started = Instant::now();
            pool.run(pieces.len(), |piece| {
                let mut sums = [0u64; 16];
                for words in pieces[piece].as_chunks::<16>().0 {
                    sums.iter_mut().zip(words).for_each(|(s, w)| *s = s.wrapping_add(*w));
                }
                black_box(sums);
            });
            BYTES as f64 / started.elapsed().as_secs_f64()
        })
        .fold(0.0, f64::max)
}
