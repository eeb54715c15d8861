//! Every backward function against finite differences of its forward function, in f64.

use selkie_formats::DType;
use selkie_model::{Error, reference::ops::*, rope::Pairing, spec::Activation};

use crate::support::{Seeded, check_gradient, dot, near, stored};

const ACTIVATIONS: [Activation; 7] = [
    Activation::Silu,
    Activation::GeluTanh,
    Activation::GeluErf,
    Activation::Relu,
    Activation::ReluSquared,
    Activation::Sigmoid,
    Activation::Identity,
];

#[test]
fn derivatives_of_activations() {
    type Function = fn(f64) -> f64;
    // Both tails, and the middle; none within a step of 0, where the second derivative of relu² jumps.
    let x: Vec<f64> = (-40..=40).map(|i| f64::from(i) / 4.0 + 0.03125).collect();
    let ones = vec![1.0; x.len()];
    for kind in ACTIVATIONS {
        let (zeros, up) = (vec![0.0; x.len()], ones.clone());
        let (dgate, _) = glu_backward(&x, &up, kind, &ones);
        check_gradient(kind.name(), &x, &dgate, |x| x.iter().map(|&x| activate(x, kind)).sum());
        assert!(glu(&x, &zeros, kind).iter().all(|&y| y == 0.0));
    }
    let plain: [(&str, Function, Function); 4] = [
        ("sigmoid", sigmoid, sigmoid_derivative),
        ("relu", relu, relu_derivative),
        ("relu_squared", relu_squared, relu_squared_derivative),
        ("softplus", softplus, softplus_derivative),
    ];
    for (what, function, derivative) in plain {
        let dx: Vec<f64> = x.iter().map(|&x| derivative(x)).collect();
        check_gradient(what, &x, &dx, |x| x.iter().map(|&x| function(x)).sum());
    }
}

/// Far out nothing overflows, in f32 either.
#[test]
fn tails_of_activations() {
    assert_eq!(softplus(1e4f32), 1e4);
    assert_eq!(softplus(-1e4f32), 0.0);
    assert!((softplus(-20.0f64) / (-20f64).exp() - 1.0).abs() < 1e-8);
    for kind in [Activation::Silu, Activation::GeluTanh, Activation::GeluErf] {
        assert_eq!(activate(100f32, kind), 100.0, "{}", kind.name());
        assert!(activate(-100f32, kind).abs() < 1e-30, "{}", kind.name());
        assert_eq!(activate_derivative(100f32, kind), 1.0, "{}", kind.name());
        assert!(activate_derivative(-100f32, kind).abs() < 1e-30, "{}", kind.name());
    }
}

#[test]
fn gated_pairs() {
    let mut seeded = Seeded(1);
    let [gate, up, dy] = [0; 3].map(|_| seeded.values(12));
    for kind in ACTIVATIONS {
        let (dgate, dup) = glu_backward(&gate, &up, kind, &dy);
        check_gradient("gate", &gate, &dgate, |gate| dot(&glu(gate, &up, kind), &dy));
        check_gradient("up", &up, &dup, |up| dot(&glu(&gate, up, kind), &dy));
    }
    let (alpha, limit) = (1.702, 0.5 + 1.0 / 64.0 + 1.0 / 2048.0);
    let (dgate, dup) = clamped_swiglu_backward(&gate, &up, alpha, limit, &dy);
    assert!(dgate.contains(&0.0) && dup.contains(&0.0), "some of each should be clamped");
    check_gradient("gate", &gate, &dgate, |gate| dot(&clamped_swiglu(gate, &up, alpha, limit), &dy));
    check_gradient("up", &up, &dup, |up| dot(&clamped_swiglu(&gate, up, alpha, limit), &dy));
}

#[test]
fn elementwise() {
    let mut seeded = Seeded(2);
    let [x, y, d] = [0; 3].map(|_| seeded.values(7));
    let (dx, dy) = add_backward(0.4, &d);
    check_gradient("x of add", &x, &dx, |x| dot(&add(x, &y, 0.4), &d));
    check_gradient("y of add", &y, &dy, |y| dot(&add(&x, y, 0.4), &d));
    check_gradient("scale", &x, &scale_backward(-2.5, &d), |x| dot(&scale(x, -2.5), &d));
    let (limit, dx) = (0.3, clamp_backward(&x, 0.3, &d));
    assert!(dx.contains(&0.0) && dx.iter().any(|&dx| dx != 0.0), "some should be held, and some not");
    check_gradient("clamp", &x, &dx, |x| dot(&clamp(x, limit), &d));
    check_gradient("soft_cap", &x, &soft_cap_backward(&x, 0.7, &d), |x| dot(&soft_cap(x, 0.7), &d));
}

#[test]
fn norms() {
    let mut seeded = Seeded(3);
    let (x, dy) = (seeded.values(36), seeded.values(36));
    // Whole rows; heads that share a weight; groups within a row that has a weight of its own for each value.
    for (len, group) in [(12, 12), (4, 4), (12, 3)] {
        let weight = seeded.values(len);
        let eps = 0.01;
        let (dx, dweight) = rms_norm_backward(&x, &weight, group, eps, &dy);
        check_gradient("x of rms_norm", &x, &dx, |x| dot(&rms_norm(x, &weight, group, eps), &dy));
        check_gradient("weight of rms_norm", &weight, &dweight, |w| dot(&rms_norm(&x, w, group, eps), &dy));
        let bias = seeded.values(len);
        let (dx, dweight, dbias) = layer_norm_backward(&x, &weight, eps, &dy);
        check_gradient("x of layer_norm", &x, &dx, |x| dot(&layer_norm(x, &weight, Some(&bias), eps), &dy));
        check_gradient("weight", &weight, &dweight, |w| dot(&layer_norm(&x, w, Some(&bias), eps), &dy));
        check_gradient("bias", &bias, &dbias, |b| dot(&layer_norm(&x, &weight, Some(b), eps), &dy));
        assert_eq!(layer_norm(&x, &weight, None, eps), layer_norm(&x, &weight, Some(&vec![0.0; len]), eps));
    }
}

/// Over stored blocks the gradient is that of the values which the blocks mean.
#[test]
fn linear_over_stored_blocks() {
    let mut seeded = Seeded(4);
    let (rows, input, out) = (3, 64, 5);
    let values = seeded.floats(out * input);
    let (x, dy) = (seeded.values(rows * input), seeded.values(rows * out));
    for dtype in [DType::F32, DType::F16, DType::Q8_0, DType::Q4_0] {
        let weight = stored(dtype, &[out, input], &values);
        let bias = seeded.floats(out);
        let dx = linear_backward(&weight, &dy).expect("dx");
        check_gradient(&format!("x over {dtype}"), &x, &dx, |x| dot(&linear(x, &weight, Some(&bias)).expect("y"), &dy));
    }
}

#[test]
fn linear_weights() {
    let mut seeded = Seeded(5);
    let (rows, input, out) = (4, 6, 3);
    let (x, dy) = (seeded.values(rows * input), seeded.values(rows * out));
    let (weight, bias) = (seeded.values(out * input), seeded.values(out));
    let narrow = |v: &[f64]| -> Vec<f32> { v.iter().map(|&v| v as f32).collect() };
    let loss = |weight: &[f64], bias: &[f64]| {
        let weight = stored(DType::F32, &[out, input], &narrow(weight));
        dot(&linear(&x, &weight, Some(&narrow(bias))).expect("y"), &dy)
    };
    let (dweight, dbias) = linear_backward_weight(&x, &dy, out, input);
    check_gradient("weight", &weight, &dweight, |w| loss(w, &bias));
    check_gradient("bias", &bias, &dbias, |b| loss(&weight, b));
}

#[test]
fn rows_of_a_table() {
    let mut seeded = Seeded(6);
    let (vocab_size, width) = (5, 3);
    let ids = [3, 0, 3, 4];
    let (table, dy) = (seeded.values(vocab_size * width), seeded.values(ids.len() * width));
    let dtable = embed_backward(&ids, vocab_size, 1.5, &dy).expect("dtable");
    check_gradient("table", &table, &dtable, |table| {
        let values: Vec<f32> = table.iter().map(|&v| v as f32).collect();
        dot(&embed(&ids, &stored(DType::F32, &[vocab_size, width], &values), 1.5).expect("rows"), &dy)
    });
    let outside = embed_backward(&[5], vocab_size, 1.0, &dy[..width]);
    assert!(matches!(outside, Err(Error::TokenId { id: 5, vocab_size: 5 })));

    let taken = [1, 3, 3];
    let (x, dy) = (seeded.values(4 * width), seeded.values(taken.len() * width));
    check_gradient("take_rows", &x, &take_rows_backward(4, width, &taken, &dy), |x| {
        dot(&take_rows(x, width, &taken), &dy)
    });
}

#[test]
fn rotation() {
    let mut seeded = Seeded(7);
    // The last two channels stay; cos and sin carry a factor, as YaRN's do.
    let (head, dy) = (seeded.values(8), seeded.values(8));
    let angles: Vec<(f64, f64)> = [0.3, 1.7, -2.0].map(|a: f64| (1.2 * a.cos(), 1.2 * a.sin())).to_vec();
    for pairing in [Pairing::Halves, Pairing::Interleaved] {
        let mut dhead = dy.clone();
        rope_backward(&mut dhead, &angles, pairing);
        check_gradient("rope", &head, &dhead, |head| {
            let mut turned = head.to_vec();
            rope(&mut turned, &angles, pairing);
            dot(&turned, &dy)
        });
    }
}

#[test]
fn attention_in_all_its_forms() {
    let plain = AttentionShape {
        n_heads: 4,
        n_kv_heads: 2,
        head_dim: 3,
        v_head_dim: 2,
        scale: 0.75,
        softcap: None,
        window: None,
        causal: true,
    };
    let shapes = [
        plain,
        AttentionShape { window: Some(2), ..plain },
        AttentionShape { softcap: Some(0.5), ..plain },
        AttentionShape { causal: false, ..plain },
        AttentionShape { n_kv_heads: 1, softcap: Some(2.0), window: Some(3), ..plain },
    ];
    let mut seeded = Seeded(8);
    let (rows, past) = (3, 2);
    for shape in shapes {
        let q = seeded.values(rows * shape.n_heads * shape.head_dim);
        let k = seeded.values((past + rows) * shape.n_kv_heads * shape.head_dim);
        let v = seeded.values((past + rows) * shape.n_kv_heads * shape.v_head_dim);
        let dy = seeded.values(rows * shape.n_heads * shape.v_head_dim);
        for sinks in [None, Some(seeded.values(shape.n_heads))] {
            let what = |of: &str| format!("{of} of {shape:?}, sinks {}", sinks.is_some());
            let loss = |q: &[f64], k: &[f64], v: &[f64], sinks: Option<&[f64]>| {
                dot(&attention_with_sinks(q, k, v, sinks, past, &shape), &dy)
            };
            let d = attention_backward(&q, &k, &v, sinks.as_deref(), past, &shape, &dy);
            check_gradient(&what("q"), &q, &d.q, |q| loss(q, &k, &v, sinks.as_deref()));
            check_gradient(&what("k"), &k, &d.k, |k| loss(&q, k, &v, sinks.as_deref()));
            check_gradient(&what("v"), &v, &d.v, |v| loss(&q, &k, v, sinks.as_deref()));
            assert_eq!(d.sinks.is_some(), sinks.is_some());
            if let (Some(sinks), Some(dsinks)) = (&sinks, &d.sinks) {
                check_gradient(&what("sinks"), sinks, dsinks, |s| loss(&q, &k, &v, Some(s)));
            }
        }
    }
}

/// A sink takes its part: with one far below the scores nothing changes, with one far above nothing is left.
#[test]
fn sinks_at_their_ends() {
    let shape = AttentionShape {
        n_heads: 1,
        n_kv_heads: 1,
        head_dim: 2,
        v_head_dim: 2,
        scale: 1.0,
        softcap: None,
        window: None,
        causal: true,
    };
    let mut seeded = Seeded(9);
    let [q, k, v] = [0; 3].map(|_| seeded.values(6));
    let plain = attention(&q, &k, &v, 0, &shape);
    near(&attention_with_sinks(&q, &k, &v, Some(&[-60.0]), 0, &shape), &plain, 1e-12, "a low sink");
    let gone = attention_with_sinks(&q, &k, &v, Some(&[60.0]), 0, &shape);
    assert!(gone.iter().all(|y: &f64| y.abs() < 1e-20));
}

#[test]
fn losses() {
    let mut seeded = Seeded(10);
    let logits = seeded.values(4 * 6);
    let targets = [Some(2), None, Some(5), Some(0)];
    let mixed = LossTerms { label_smoothing: 0.125, z_loss: 0.0625 };
    for terms in [LossTerms::default(), mixed] {
        let d = cross_entropy_backward(&logits, &targets, terms, 0.5);
        check_gradient("logits", &logits, &d, |logits| 0.5 * cross_entropy(logits, &targets, terms));
    }
}
