//! Attention and its cache, on every instruction set, against plain loops in f64.

mod common;

use common::{Random, assert_close, pools};
use half::f16;
use selkie_cpu::{Attention, CacheType, Isa, KvCache, Pool, attention};

struct Shape {
    heads: usize,
    kv_heads: usize,
    k_dim: usize,
    v_dim: usize,
}

const LLAMA: Shape = Shape { heads: 9, kv_heads: 3, k_dim: 64, v_dim: 64 };
const ODD: Shape = Shape { heads: 4, kv_heads: 2, k_dim: 20, v_dim: 37 };

fn reference(shape: &Shape, kind: &Attention, q: &[f32], k: &[f32], v: &[f32], past: usize) -> Vec<f64> {
    let &Shape { heads, kv_heads, k_dim, v_dim } = shape;
    let mut out = vec![];
    for (row, q) in q.chunks_exact(heads * k_dim).enumerate() {
        for (head, q) in q.chunks_exact(k_dim).enumerate() {
            let kv = head / (heads / kv_heads);
            let end = past + row + 1;
            let keys = kind.window.map_or(0, |w| end.saturating_sub(w))..end;
            let score = |j: usize| {
                let k = &k[(j * kv_heads + kv) * k_dim..][..k_dim];
                let dot: f64 = q.iter().zip(k).map(|(&q, &k)| q as f64 * k as f64).sum();
                let score = dot * kind.scale as f64;
                kind.softcap.map_or(score, |cap| cap as f64 * (score / cap as f64).tanh())
            };
            let weights: Vec<f64> = keys.clone().map(|j| score(j).exp()).collect();
            let sink = kind.sinks.map_or(0.0, |sinks| (sinks[head] as f64).exp());
            let sum = weights.iter().sum::<f64>() + sink;
            for d in 0..v_dim {
                let value = |j: usize| v[(j * kv_heads + kv) * v_dim + d] as f64;
                out.push(keys.clone().zip(&weights).map(|(j, w)| w * value(j)).sum::<f64>() / sum);
            }
        }
    }
    out
}

fn rounded(x: &[f32]) -> Vec<f32> {
    x.iter().map(|&x| f16::from_f32(x).to_f32()).collect()
}

fn run(pool: &Pool, shape: &Shape, kind: &Attention, dtype: CacheType, past: usize, rows: usize) {
    let mut random = Random::new((past * 31 + rows) as u64);
    let total = past + rows;
    let mut values = |len: usize| random.values(len).iter().map(|x| x * 2.0).collect::<Vec<_>>();
    let k = values(total * shape.kv_heads * shape.k_dim);
    let v = values(total * shape.kv_heads * shape.v_dim);
    let q = values(rows * shape.heads * shape.k_dim);
    let mut cache = KvCache::new(dtype, shape.kv_heads, shape.k_dim, shape.v_dim, total + 3).unwrap();
    let (k_cut, v_cut) = (past * shape.kv_heads * shape.k_dim, past * shape.kv_heads * shape.v_dim);
    cache.append(pool.isa(), &k[..k_cut], &v[..v_cut]).unwrap();
    cache.append(pool.isa(), &k[k_cut..], &v[v_cut..]).unwrap();
    assert_eq!(cache.len(), total);
    let mut out = vec![f32::NAN; rows * shape.heads * shape.v_dim];
    attention(pool, kind, &q, &cache, past, &mut out).unwrap();
    let (k, v) = if dtype == CacheType::F16 { (rounded(&k), rounded(&v)) } else { (k, v) };
    let wanted = reference(shape, kind, &q, &k, &v, past);
    let what = format!("{past}+{rows} of {} heads, {kind:?}, {dtype:?} on {}", shape.heads, pool.isa());
    assert_close(&what, &out, &wanted, |_| 4e-6);
}

#[test]
fn lengths_windows_caps_and_sinks() {
    for pool in pools() {
        for dtype in [CacheType::F32, CacheType::F16] {
            for shape in [LLAMA, ODD] {
                let sinks: Vec<f32> = (0..shape.heads).map(|i| i as f32 * 0.7 - 1.0).collect();
                let plain = Attention { heads: shape.heads, scale: 0.125, softcap: None, window: None, sinks: None };
                let kinds = [
                    plain,
                    Attention { window: Some(1), ..plain },
                    Attention { window: Some(50), ..plain },
                    Attention { softcap: Some(5.0), scale: 1.0, ..plain },
                    Attention { sinks: Some(&sinks), window: Some(100), ..plain },
                ];
                for kind in &kinds {
                    for (past, rows) in [(0, 1), (0, 7), (63, 1), (64, 1), (130, 2), (700, 1), (0, 100), (90, 45)] {
                        run(&pool, &shape, kind, dtype, past, rows);
                    }
                }
            }
        }
    }
}

/// Attention in one piece is attention in chunks, row by row.
#[test]
fn chunks_agree() {
    for pool in pools() {
        let kind = Attention { heads: 9, scale: 0.125, softcap: None, window: None, sinks: None };
        let mut random = Random::new(8);
        let (q, k, v) = (random.values(80 * 576), random.values(80 * 192), random.values(80 * 192));
        let mut cache = KvCache::new(CacheType::F32, 3, 64, 64, 80).unwrap();
        let mut pieces = vec![0.0; 80 * 576];
        for (start, end) in [(0, 30), (30, 31), (31, 64), (64, 80)] {
            cache.append(pool.isa(), &k[start * 192..end * 192], &v[start * 192..end * 192]).unwrap();
            let out = &mut pieces[start * 576..end * 576];
            attention(&pool, &kind, &q[start * 576..end * 576], &cache, start, out).unwrap();
        }
        let mut whole = vec![0.0; 80 * 576];
        attention(&pool, &kind, &q, &cache, 0, &mut whole).unwrap();
        let wanted: Vec<f64> = whole.iter().map(|&x| x as f64).collect();
        assert_close(&format!("chunks on {}", pool.isa()), &pieces, &wanted, |_| 1e-6);
    }
}

#[test]
fn large_scores_do_not_overflow() {
    for pool in pools() {
        let kind = Attention { heads: 1, scale: 1.0, softcap: None, window: None, sinks: None };
        let mut cache = KvCache::new(CacheType::F32, 1, 32, 32, 100).unwrap();
        let k: Vec<f32> = (0..100 * 32).map(|i| if i / 32 == 70 { 100.0 } else { -100.0 }).collect();
        let v: Vec<f32> = (0..100 * 32).map(|i| (i / 32) as f32).collect();
        cache.append(pool.isa(), &k, &v).unwrap();
        let mut out = [0.0; 32];
        attention(&pool, &kind, &[10.0; 32], &cache, 99, &mut out).unwrap();
        assert_eq!(out, [70.0; 32], "{}", pool.isa());
    }
}

#[test]
fn a_cache_grows_forgets_and_gives_back() {
    for &isa in Isa::available() {
        for dtype in [CacheType::F32, CacheType::F16] {
            let mut random = Random::new(2);
            let (k, v) = (rounded(&random.values(5 * 2 * 11)), rounded(&random.values(5 * 2 * 8)));
            let mut cache = KvCache::new(dtype, 2, 11, 8, 3).unwrap();
            assert!(cache.append(isa, &k, &v).is_err(), "more than the capacity");
            assert!(cache.append(isa, &k[..44], &v[..16]).is_err(), "two keys, one value");
            assert!(cache.is_empty());
            cache.append(isa, &k[..3 * 22], &v[..3 * 16]).unwrap();
            let old = cache.clone();
            cache.reserve(5).unwrap();
            cache.append(isa, &k[3 * 22..], &v[3 * 16..]).unwrap();
            assert_eq!((cache.len(), old.len()), (5, 3));
            assert_eq!(cache.rows(isa, 0..5).unwrap(), (k.clone(), v.clone()));
            assert_eq!(old.rows(isa, 1..3).unwrap(), (k[22..66].to_vec(), v[16..48].to_vec()));
            assert!(old.rows(isa, 1..4).is_err());
            cache.truncate(1);
            assert_eq!(cache.len(), 1);
            cache.append(isa, &k[22..44], &v[16..32]).unwrap();
            assert_eq!(cache.rows(isa, 0..2).unwrap(), (k[..44].to_vec(), v[..32].to_vec()));
        }
    }
    assert!(KvCache::new(CacheType::F32, usize::MAX, 2, 2, 2).is_err());
}

#[test]
fn wrong_sizes_are_refused() {
    let pool = Pool::new(1);
    let mut cache = KvCache::new(CacheType::F32, 2, 4, 4, 8).unwrap();
    cache.append(pool.isa(), &[0.0; 16], &[0.0; 16]).unwrap();
    let kind = Attention { heads: 4, scale: 1.0, softcap: None, window: None, sinks: None };
    let mut out = [0.0; 32];
    assert!(attention(&pool, &kind, &[0.0; 32], &cache, 0, &mut out).is_ok());
    assert!(attention(&pool, &kind, &[0.0; 32], &cache, 1, &mut out).is_err(), "beyond the cache");
    assert!(attention(&pool, &kind, &[0.0; 31], &cache, 0, &mut out).is_err());
    assert!(attention(&pool, &kind, &[0.0; 32], &cache, 0, &mut out[1..]).is_err());
    assert!(attention(&pool, &Attention { heads: 3, ..kind }, &[0.0; 24], &cache, 0, &mut out).is_err());
    assert!(attention(&pool, &Attention { window: Some(0), ..kind }, &[0.0; 32], &cache, 0, &mut out).is_err());
    assert!(attention(&pool, &Attention { sinks: Some(&[0.0]), ..kind }, &[0.0; 32], &cache, 0, &mut out).is_err());
}
