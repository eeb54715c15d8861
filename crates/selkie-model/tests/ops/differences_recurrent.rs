//! Gradients of the recurrent ops, and of what stands around them, against finite differences, in f64: by every operand
//! and by the state before, from the result and from the state after.

use selkie_formats::DType;
use selkie_model::{reference::ops::*, rope::Pairing};

use crate::support::{Seeded, check_gradient, check_gradients, dot, stored};

#[test]
fn convolution() {
    let mut seeded = Seeded(40);
    let (rows, channels) = (5, 3);
    for taps in [1, 2, 4] {
        for silu in [false, true] {
            let [x, dy] = [0; 2].map(|_| seeded.values(rows * channels));
            let [window, dwindow] = [0; 2].map(|_| seeded.values((taps - 1) * channels));
            let (weight, bias) = (seeded.values(channels * taps), seeded.values(channels));
            let g = causal_conv_backward(&x, &weight, Some(&bias), silu, &window, channels, taps, &dy, &dwindow);
            let what = format!("convolution, {taps} taps, silu {silu}");
            let inputs = [("x", x, g.x), ("weight", weight, g.weight), ("bias", bias, g.bias)];
            let inputs = inputs.into_iter().chain((taps > 1).then_some(("window", window, g.window)));
            check_gradients(&what, inputs.collect(), |v| {
                let mut window = v.get(3).map_or(vec![], |w| w.to_vec());
                let y = causal_conv(v[0], v[1], Some(v[2]), silu, &mut window, channels, taps);
                dot(&y, &dy) + dot(&window, &dwindow)
            });
        }
    }
}

#[test]
fn scan_of_mamba1() {
    let mut seeded = Seeded(41);
    let (rows, channels, d_state) = (5, 3, 2);
    for input in [InputRule::Euler, InputRule::ZeroOrderHold] {
        let [x, dt, dy] = [0; 3].map(|_| seeded.values(rows * channels));
        let [b, c] = [0; 2].map(|_| seeded.values(rows * d_state));
        let a: Vec<f64> = seeded.values(channels * d_state).iter().map(|v| v - 1.25).collect();
        let d = seeded.values(channels);
        let [state, dstate] = [0; 2].map(|_| seeded.values(channels * d_state));
        let g = selective_scan_backward(&x, &dt, &b, &c, &a, &d, input, &state, &dy, &dstate);
        let inputs = vec![
            ("x", x, g.x),
            ("dt", dt, g.dt),
            ("b", b, g.b),
            ("c", c, g.c),
            ("a", a, g.a),
            ("d", d, g.d),
            ("state", state, g.state),
        ];
        check_gradients(&format!("{input:?}"), inputs, |v| {
            let mut state = v[6].to_vec();
            let y = selective_scan(v[0], v[1], v[2], v[3], v[4], v[5], input, &mut state);
            dot(&y, &dy) + dot(&state, &dstate)
        });
    }
}

#[test]
fn duality_of_mamba2() {
    let mut seeded = Seeded(42);
    let rows = 5;
    let plain = SsdShape {
        n_heads: 4,
        head_dim: 2,
        n_groups: 2,
        d_state: 3,
        dt_min: 0.0,
        dt_max: f32::INFINITY,
        scale_input: true,
    };
    // Limits that no step size comes near to: a difference over the edge would be none.
    let limited = SsdShape { dt_min: 0.602, dt_max: 0.9011, ..plain };
    for shape in [plain, limited, SsdShape { scale_input: false, n_groups: 1, ..plain }] {
        let SsdShape { n_heads, head_dim, n_groups, d_state, .. } = shape;
        let xbc = seeded.values(rows * (n_heads * head_dim + 2 * n_groups * d_state));
        let dt = seeded.values(rows * n_heads);
        let a: Vec<f64> = seeded.values(n_heads).iter().map(|v| v - 1.25).collect();
        let [d, dt_bias] = [0; 2].map(|_| seeded.values(n_heads));
        let [state, dstate] = [0; 2].map(|_| seeded.values(n_heads * head_dim * d_state));
        let dy = seeded.values(rows * n_heads * head_dim);
        let g = ssd_backward(&xbc, &dt, &a, &d, Some(&dt_bias), &shape, &state, &dy, &dstate);
        let clamped = g.dt.iter().filter(|&&d| d == 0.0).count();
        assert_eq!(clamped > 0 && clamped < dt.len(), shape == limited, "{clamped} clamped of {shape:?}");
        let inputs = vec![
            ("xbc", xbc, g.xbc),
            ("dt", dt, g.dt),
            ("a", a, g.a),
            ("d", d, g.d),
            ("dt_bias", dt_bias, g.dt_bias),
            ("state", state, g.state),
        ];
        check_gradients(&format!("{shape:?}"), inputs, |v| {
            let mut state = v[5].to_vec();
            let y = ssd(v[0], v[1], v[2], v[3], Some(v[4]), &shape, &mut state);
            dot(&y, &dy) + dot(&state, &dstate)
        });
    }
}

#[test]
fn mamba3_in_all_its_forms() {
    let mut seeded = Seeded(43);
    let rows = 4;
    let siso = Mamba3Shape {
        n_heads: 4,
        head_dim: 2,
        n_groups: 2,
        d_state: 6,
        rank: 1,
        n_angles: 2,
        pairing: Pairing::Interleaved,
        a_activation: DecayActivation::HeavyTail,
        a_floor: 1e-4,
    };
    let shapes = [
        siso,
        Mamba3Shape { n_groups: 1, n_angles: 3, a_activation: DecayActivation::Softplus, ..siso },
        Mamba3Shape { pairing: Pairing::Halves, a_floor: 0.8002, ..siso },
        Mamba3Shape { rank: 2, pairing: Pairing::Halves, ..siso },
        Mamba3Shape { rank: 3, n_groups: 4, a_floor: 0.7003, a_activation: DecayActivation::Softplus, ..siso },
    ];
    for shape in shapes {
        let Mamba3Shape { n_heads, head_dim, n_groups, d_state, rank, n_angles, .. } = shape;
        let x = seeded.values(rows * n_heads * head_dim);
        let [b, c] = [0; 2].map(|_| seeded.values(rows * rank * n_groups * d_state));
        let [dt, a, trap] = [0; 3].map(|_| seeded.values(rows * n_heads));
        let angle = seeded.values(rows * n_angles);
        let [dt_bias, d] = [0; 2].map(|_| seeded.values(n_heads));
        let [b_bias, c_bias] = [0; 2].map(|_| seeded.values(n_heads * rank * d_state));
        let mimo_x = (rank > 1).then(|| seeded.values(n_heads * rank * head_dim));
        let dy = seeded.values(rows * n_heads * rank * head_dim);
        let mut values = || Mamba3Values {
            // Away from 0 and 2π, over which a difference would not be one.
            angle: seeded.values(n_heads * n_angles).iter().map(|v| v + 3.0).collect(),
            s: seeded.values(n_heads * head_dim * d_state),
            k: seeded.values(n_heads * rank * d_state),
            x: seeded.values(n_heads * head_dim),
        };
        let (state, dstate) = (values(), values());
        let params =
            Mamba3Params { dt_bias: &dt_bias, b_bias: &b_bias, c_bias: &c_bias, d: &d, mimo_x: mimo_x.as_deref() };
        let g = mamba3_backward(&x, &b, &c, &dt, &a, &trap, &angle, &params, &shape, &state, &dy, &dstate);
        let floored = g.a.iter().filter(|&&d| d == 0.0).count();
        assert_eq!(floored > 0, shape.a_floor > 0.5, "{shape:?}");
        assert!(floored < a.len(), "{shape:?}");
        let mut inputs = vec![
            ("x", x, g.x),
            ("b", b, g.b),
            ("c", c, g.c),
            ("dt", dt, g.dt),
            ("a", a, g.a),
            ("trap", trap, g.trap),
            ("angle", angle, g.angle),
            ("dt_bias", dt_bias.clone(), g.dt_bias),
            ("b_bias", b_bias.clone(), g.b_bias),
            ("c_bias", c_bias.clone(), g.c_bias),
            ("d", d.clone(), g.d),
            ("angle before", state.angle, g.state.angle),
            ("states before", state.s, g.state.s),
            ("k before", state.k, g.state.k),
            ("x before", state.x, g.state.x),
        ];
        assert_eq!(mimo_x.is_some(), g.mimo_x.is_some());
        inputs.extend(mimo_x.clone().zip(g.mimo_x).map(|(value, d)| ("mimo_x", value, d)));
        check_gradients(&format!("{shape:?}"), inputs, |v| {
            let params =
                Mamba3Params { dt_bias: v[7], b_bias: v[8], c_bias: v[9], d: v[10], mimo_x: v.get(15).copied() };
            let [angle, s, k, x] = [v[11], v[12], v[13], v[14]].map(<[f64]>::to_vec);
            let mut state = Mamba3Values { angle, s, k, x };
            let y = mamba3(v[0], v[1], v[2], v[3], v[4], v[5], v[6], &params, &shape, state.lend());
            let mut loss = dot(&y, &dy);
            loss += dot(&state.angle, &dstate.angle) + dot(&state.s, &dstate.s);
            loss + dot(&state.k, &dstate.k) + dot(&state.x, &dstate.x)
        });
    }
}

#[test]
fn complex_duality() {
    let mut seeded = Seeded(44);
    let rows = 4;
    for n_groups in [1, 2] {
        let shape = CssdShape { n_heads: 4, head_dim: 2, n_groups, d_state: 3 };
        let CssdShape { n_heads, head_dim, d_state, .. } = shape;
        let xbc = seeded.values(rows * (n_heads * head_dim + 4 * n_groups * d_state));
        let dt = seeded.values(rows * n_heads);
        let a_log = seeded.values(n_heads * 2);
        let [d, dt_bias] = [0; 2].map(|_| seeded.values(n_heads));
        let [state, dstate] = [0; 2].map(|_| seeded.values(n_heads * head_dim * d_state * 2));
        let dy = seeded.values(rows * n_heads * head_dim);
        let g = cssd_backward(&xbc, &dt, &a_log, &d, &dt_bias, &shape, &state, &dy, &dstate);
        let inputs = vec![
            ("xbc", xbc, g.xbc),
            ("dt", dt, g.dt),
            ("a_log", a_log, g.a_log),
            ("d", d, g.d),
            ("dt_bias", dt_bias, g.dt_bias),
            ("state", state, g.state),
        ];
        check_gradients(&format!("{shape:?}"), inputs, |v| {
            let mut state = v[5].to_vec();
            let y = cssd(v[0], v[1], v[2], v[3], v[4], &shape, &mut state);
            dot(&y, &dy) + dot(&state, &dstate)
        });
    }
}

#[test]
fn gated_delta_rule() {
    let mut seeded = Seeded(45);
    let rows = 5;
    for (n_k_heads, n_v_heads) in [(2, 2), (2, 4)] {
        let shape = DeltaShape { n_k_heads, n_v_heads, k_dim: 3, v_dim: 2 };
        let qkv = seeded.values(rows * (2 * n_k_heads * 3 + n_v_heads * 2));
        let [b, a] = [0; 2].map(|_| seeded.values(rows * n_v_heads));
        let a_weight: Vec<f64> = seeded.values(n_v_heads).iter().map(|v| v - 1.25).collect();
        let dt_bias = seeded.values(n_v_heads);
        let [state, dstate] = [0; 2].map(|_| seeded.values(n_v_heads * 3 * 2));
        let dy = seeded.values(rows * n_v_heads * 2);
        let g = delta_rule_backward(&qkv, &b, &a, &a_weight, &dt_bias, &shape, &state, &dy, &dstate);
        let inputs = vec![
            ("qkv", qkv, g.qkv),
            ("b", b, g.b),
            ("a", a, g.a),
            ("a_weight", a_weight, g.a_weight),
            ("dt_bias", dt_bias, g.dt_bias),
            ("state", state, g.state),
        ];
        check_gradients(&format!("{shape:?}"), inputs, |v| {
            let mut state = v[5].to_vec();
            let y = delta_rule(v[0], v[1], v[2], v[3], v[4], &shape, &mut state);
            dot(&y, &dy) + dot(&state, &dstate)
        });
    }
}

#[test]
fn heads_joined() {
    let (a, b) = ([1.0, 2.0, 3.0, 4.0], [5.0, 6.0]);
    let joined = join_heads(&a, &b, 2, 1);
    assert_eq!(joined, [1.0, 2.0, 5.0, 3.0, 4.0, 6.0]);
    assert_eq!(join_heads_backward(2, 1, &joined), (a.to_vec(), b.to_vec()));
}

/// Each head has a matrix of its own, over stored blocks too.
#[test]
fn a_product_for_each_head() {
    let mut seeded = Seeded(46);
    let (rows, n_heads, input, out) = (3, 2, 32, 5);
    let values = seeded.floats(n_heads * out * input);
    let (x, dy) = (seeded.values(rows * n_heads * input), seeded.values(rows * n_heads * out));
    for dtype in [DType::F32, DType::Q8_0] {
        let stack = stored(dtype, &[n_heads, out, input], &values);
        let y = head_linear(&x, &stack, n_heads).expect("y");
        for head in 0..n_heads {
            let own = stored(dtype, &[out, input], &values[head * out * input..][..out * input]);
            let every = |values: &[f64], width: usize| -> Vec<f64> {
                values.chunks_exact(width).skip(head).step_by(n_heads).flatten().copied().collect()
            };
            assert_eq!(every(&y, out), linear(&every(&x, input), &own, None).expect("y"), "head {head}");
        }
        let dx = head_linear_backward(&stack, n_heads, &dy).expect("dx");
        check_gradient(&format!("x over {dtype}"), &x, &dx, |x| dot(&head_linear(x, &stack, n_heads).expect("y"), &dy));
    }
}

#[test]
fn ranks() {
    // Two rows, two heads, two ranks, one channel.
    let (x, w) = ([1.0, 2.0, 3.0, 4.0], [10.0, 20.0, 30.0, 40.0]);
    let wide = rank_expand(&x, &w, 2, 1);
    assert_eq!(wide, [10.0, 20.0, 60.0, 80.0, 30.0, 60.0, 120.0, 160.0]);
    assert_eq!(rank_reduce(&wide, &[1.0, 2.0, 3.0, 4.0], 2, 1), [50.0, 500.0, 150.0, 1000.0]);

    let mut seeded = Seeded(47);
    let (rows, n_heads, rank, head_dim) = (3, 2, 4, 3);
    let (narrow, wide) = (rows * n_heads * head_dim, rows * n_heads * rank * head_dim);
    let (x, w, dy) = (seeded.values(narrow), seeded.values(n_heads * rank * head_dim), seeded.values(wide));
    let (dx, dw) = rank_expand_backward(&x, &w, n_heads, head_dim, &dy);
    check_gradients("rank_expand", vec![("x", x, dx), ("w", w.clone(), dw)], |v| {
        dot(&rank_expand(v[0], v[1], n_heads, head_dim), &dy)
    });
    let (x, dy) = (seeded.values(wide), seeded.values(narrow));
    let (dx, dw) = rank_reduce_backward(&x, &w, n_heads, head_dim, &dy);
    check_gradients("rank_reduce", vec![("x", x, dx), ("w", w, dw)], |v| {
        dot(&rank_reduce(v[0], v[1], n_heads, head_dim), &dy)
    });
}

#[test]
fn rows_scaled() {
    assert_eq!(scale_rows(&[2.0, 4.0, 6.0, 8.0], &[0.0, 800.0], 2), [1.0, 2.0, 6.0, 8.0]);
    let mut seeded = Seeded(48);
    let (x, gate, dy) = (seeded.values(12), seeded.values(4), seeded.values(12));
    let (dx, dgate) = scale_rows_backward(&x, &gate, 3, &dy);
    check_gradients("scale_rows", vec![("x", x, dx), ("gate", gate, dgate)], |v| dot(&scale_rows(v[0], v[1], 3), &dy));
}

#[test]
fn a_norm_without_a_weight() {
    let mut seeded = Seeded(49);
    let (x, dy) = (seeded.values(12), seeded.values(12));
    let dx = rms_norm_plain_backward(&x, 4, 0.01, &dy);
    check_gradient("rms_norm_plain", &x, &dx, |x| dot(&rms_norm_plain(x, 4, 0.01), &dy));
}
