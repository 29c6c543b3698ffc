use squall_program::Stage;

use super::*;
use crate::load::Limits;

const SECOND: u64 = 1_000_000_000;

fn seat((number, of): (u64, u64)) -> WorkerIndex {
    WorkerIndex { part: squall_units::Division::WHOLE, worker: (number as u32, of as u32) }
}

fn template(arrival: Arrival) -> Template {
    crate::tests::template("t", arrival)
}

fn load(arrivals: impl IntoIterator<Item = Arrival>) -> Load {
    Load { templates: arrivals.into_iter().map(template).collect(), seed: 3, ..Load::default() }
}

fn open(cps: u64) -> Arrival {
    Arrival::Open { cps: Cps::per_second(cps), spacing: Spacing::Constant }
}

fn every(_: usize, _: u64) -> bool {
    true
}

fn until(arrivals: &mut Arrivals, end: u64) -> Vec<Due> {
    until_of(arrivals, end, (0, 1))
}

/// Takes the arrivals of one of several workers, which divide the flows of open loops by number.
fn until_of(arrivals: &mut Arrivals, end: u64, (worker, workers): (u64, u64)) -> Vec<Due> {
    let mine = |_, number| number % workers == worker;
    let mut all = Vec::new();
    while let Some(due) = arrivals.next_due(every).filter(|due| due.0 < end) {
        all.extend(arrivals.take(due, mine));
    }
    all
}

#[test]
fn an_open_loop_is_due_at_exact_instants() {
    let mut a = Arrivals::new(&load([open(3)]), Part::ALL, seat((0, 1)), Nanos(50));
    let due = until(&mut a, 100 * SECOND + 50);
    assert_eq!(due.len(), 300);
    for (k, due) in (0..).zip(&due) {
        assert_eq!((due.number, due.at.0), (k, 50 + k * SECOND / 3));
    }
}

#[test]
fn workers_together_are_due_as_one() {
    let poisson = Arrival::Open { cps: Cps::per_second(700), spacing: Spacing::Poisson };
    let closed = Arrival::Closed { users: 7, think: Think::Fixed(Nanos(1)) };
    let mut of = load([open(1000), poisson, closed]);
    of.shape = Shape::ramp(Nanos(SECOND / 2), Some(Nanos(SECOND)), Nanos(SECOND / 4)).unwrap();
    let run = |worker, workers| {
        let mut arrivals = Arrivals::new(&of, Part::ALL, seat((worker, workers)), Nanos(9));
        until_of(&mut arrivals, 5 * SECOND, (worker, workers))
    };
    let key = |due: &Due| (due.template, due.number);
    let mut one = run(0, 1);
    let mut many: Vec<_> = (0..3).flat_map(|worker| run(worker, 3)).collect();
    one.sort_by_key(key);
    many.sort_by_key(key);
    assert!(one.len() > 1900, "{}", one.len());
    assert_eq!(one, many);
}

#[test]
fn a_poisson_process_has_its_rate_and_its_spread() {
    let poisson = Arrival::Open { cps: Cps::per_second(10_000), spacing: Spacing::Poisson };
    let due =
        until(&mut Arrivals::new(&load([poisson]), Part::ALL, seat((0, 1)), Nanos(0)), 10 * SECOND);
    assert!((99_000..101_000).contains(&due.len()), "{}", due.len());
    let gaps: Vec<f64> = due.windows(2).map(|w| (w[1].at.0 - w[0].at.0) as f64).collect();
    let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
    let variance = gaps.iter().map(|g| (g - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
    assert!((variance.sqrt() / mean - 1.0).abs() < 0.02, "{}", variance.sqrt() / mean);
}

#[test]
fn a_ramp_rises_holds_and_falls() {
    let mut of = load([open(1000)]);
    of.shape = Shape::ramp(Nanos(2 * SECOND), Some(Nanos(3 * SECOND)), Nanos(SECOND)).unwrap();
    let mut a = Arrivals::new(&of, Part::ALL, seat((0, 1)), Nanos(0));
    let due = until(&mut a, u64::MAX);
    let between = |from: f64, to: f64| {
        due.iter().filter(|d| (from * 1e9..to * 1e9).contains(&(d.at.0 as f64))).count() as i64
    };
    for (from, to, flows) in [
        (0.0, 1.0, 250),
        (1.0, 2.0, 750),
        (2.0, 5.0, 3000),
        (5.0, 5.5, 375),
        (5.5, 6.0, 125),
        (6.0, 99.0, 0),
    ] {
        assert!((between(from, to) - flows).abs() <= 1, "{from} to {to} s: {}", between(from, to));
    }
    assert!(a.over(Nanos(6 * SECOND)) && due.is_sorted_by_key(|d| d.at));
}

#[test]
fn load_and_instant_are_inverse() {
    let ramp = Shape::ramp(Nanos(SECOND), Some(Nanos(SECOND)), Nanos(2 * SECOND)).unwrap();
    for ms in 0..4000 {
        let at = Nanos(ms * 1_000_000 + 7);
        let back = ramp.instant(ramp.passed(at)).expect("within the run").as_nanos();
        // Near both ends, a picosecond of load takes a long time to pass.
        let far = (10..3990).contains(&ms);
        assert!(back.0.abs_diff(at.0) <= if far { 2 } else { 5000 }, "{at:?} {back:?}");
    }
}

#[test]
fn arrivals_that_wait_too_long_are_given_up_and_counted() {
    for spacing in [Spacing::Constant, Spacing::Poisson] {
        let of = Load {
            max_delay: Nanos(SECOND / 10),
            ..load([Arrival::Open { cps: Cps::per_second(1000), spacing }])
        };
        let mut a = Arrivals::new(&of, Part::ALL, seat((0, 1)), Nanos(0));
        let now = Nanos(10 * SECOND);
        let mut begun = 0;
        while let Some(due) = a.take(now, every) {
            assert!(now.0 - due.at.0 <= SECOND / 10 + SECOND / 1000);
            begun += 1;
        }
        let owed: u64 = a.overdue(now, every).iter().sum();
        assert!((80..=120).contains(&(begun + owed)), "{begun} {owed}");
        let all = begun + owed + a.late(0);
        assert!((9_700..10_300).contains(&all), "{all}");
        assert!(a.next_due(every).is_some_and(|due| due > now));
    }
}

#[test]
fn users_of_a_closed_loop_come_again_when_they_have_thought() {
    let closed = Arrival::Closed { users: 3, think: Think::Fixed(Nanos(500)) };
    let mut a = Arrivals::new(&load([closed]), Part::ALL, seat((0, 1)), Nanos(0));
    let first: Vec<_> =
        std::iter::from_fn(|| a.take(Nanos(0), every)).map(|due| due.number).collect();
    assert_eq!((first, a.next_due(every)), (vec![0, 1, 2], None));
    a.ended(0, Nanos(100));
    assert_eq!(a.next_due(every), Some(Nanos(600)));
    assert_eq!(a.take(Nanos(599), every), None);
    assert_eq!(a.take(Nanos(900), every).map(|due| (due.number, due.at)), Some((3, Nanos(600))));
    assert!(!a.over(Nanos(900)));
}

#[test]
fn users_come_and_go_with_the_ramp() {
    let closed = Arrival::Closed { users: 100, think: Think::Exponential(Nanos(10)) };
    let mut of = load([closed]);
    of.shape = Shape::ramp(Nanos(1000), Some(Nanos(1000)), Nanos(1000)).unwrap();
    let mut a = Arrivals::new(&of, Part::ALL, seat((0, 1)), Nanos(0));
    let take = |a: &mut Arrivals, now| std::iter::from_fn(|| a.take(Nanos(now), every)).count();
    let waiting = |a: &Arrivals, now| a.overdue(Nanos(now), every)[0];
    assert_eq!((waiting(&a, 0), waiting(&a, 495), waiting(&a, 1500)), (1, 50, 100));
    assert_eq!((take(&mut a, 495), waiting(&a, 495), waiting(&a, 505)), (50, 0, 1));
    assert_eq!(take(&mut a, 1000), 50);
    (0..100).for_each(|_| a.ended(0, Nanos(2500)));
    // Half of the users have left.
    assert_eq!(take(&mut a, 2999), 50);
}

#[test]
fn open_flows_are_kept_at_a_number_by_weight() {
    let weight = |weight| Arrival::Weight { weight, spacing: Spacing::Constant };
    let of = Load { target: Some(Target::Active(1000)), ..load([weight(3), weight(1)]) };
    let mut a = Arrivals::new(&of, Part::ALL, seat((0, 1)), Nanos(0));
    let all: Vec<_> = std::iter::from_fn(|| a.take(Nanos(0), every)).collect();
    assert_eq!(all.len(), 1000);
    let first = all.iter().filter(|due| due.template == 0).count();
    assert!((700..800).contains(&first), "{first}");
    a.ended(1, Nanos(5));
    assert_eq!(std::iter::from_fn(|| a.take(Nanos(5), every)).count(), 1);
}

#[test]
fn arrivals_and_users_go_by_one_clock_and_patience_by_real_time() {
    let closed = Arrival::Closed { users: 10, think: Think::Fixed(Nanos(1000)) };
    let mut of = load([closed, open(1000)]);
    of.max_delay = Nanos(SECOND);
    let mut a = Arrivals::new(&of, Part::ALL, seat((0, 1)), Nanos(0));
    assert_eq!(std::iter::from_fn(|| a.take(Nanos(0), every)).count(), 11);
    // A stall of 100 ms: the clock advances by 10 ms and then lags by 90 ms.
    let (now, lag) = (Nanos(10_000_000), Nanos(90_000_000));
    a.set_lag(lag);
    assert_eq!(std::iter::from_fn(|| a.take(now, every)).count(), 10, "a millisecond apart");
    // Their flows ended at different times, and the users return at the same intervals.
    (0..10).for_each(|user| a.ended(0, Nanos(now.0 + user * 1_000_000)));
    let users = |a: &mut Arrivals, at| {
        std::iter::from_fn(|| a.take(at, every).filter(|due| due.template == 0)).collect::<Vec<_>>()
    };
    let first = users(&mut a, now + Nanos(1000));
    assert_eq!(first.len(), 1);
    assert_eq!(first[0].at, now + Nanos(1000) + lag, "nobody asked for it before, in real time");
    assert_eq!(a.late(0) + a.late(1), 0);
    // More than the maximum delay has passed in real time.
    a.set_lag(Nanos(2 * SECOND));
    while a.take(now + Nanos(50_000_000), every).is_some() {}
    assert!(a.late(1) > 30, "{}", a.late(1));
}

#[test]
fn workers_without_users_have_no_flows() {
    let mut of = load([Arrival::Closed { users: 2, think: Think::Fixed(Nanos(0)) }]);
    of.limits = Limits { flows: Some(100), ..Limits::default() };
    let begun = |worker| {
        let mut a = Arrivals::new(&of, Part::ALL, seat((worker, 5)), Nanos(0));
        let mut begun = 0;
        while a.take(Nanos(begun), every).is_some() {
            begun += 1;
            a.ended(0, Nanos(begun));
        }
        assert!(a.over(Nanos(begun)), "worker {worker}");
        begun
    };
    assert_eq!((0..5).map(begun).collect::<Vec<_>>(), [50, 50, 0, 0, 0]);
}

#[test]
fn a_worker_sleeps_until_a_flow_of_its_own_is_due() {
    let mine = |_, number| number % 7 == 3;
    let a = Arrivals::new(&load([open(1000)]), Part::ALL, seat((1, 2)), Nanos(50));
    assert_eq!(a.next_due(mine), Some(Nanos(50 + 3_000_000)));
    let alone = Arrivals::new(&load([open(1000)]), Part::ALL, seat((0, 1)), Nanos(50));
    assert_eq!(alone.next_due(mine), Some(Nanos(50)));
}

#[test]
fn limits_end_it() {
    let mut of = load([open(1000), open(1000)]);
    of.limits = Limits { flows: Some(100), ..Limits::default() };
    of.templates[0].limit = Some(20);
    let mut a = Arrivals::new(&of, Part::ALL, seat((0, 1)), Nanos(0));
    let all = until(&mut a, 10 * SECOND);
    assert_eq!((all.len(), all.iter().filter(|d| d.template == 0).count()), (100, 20));
    assert!(a.over(Nanos(0)) && a.next_due(every).is_none());
    of.limits = Limits { duration: Some(Nanos(SECOND)), ..Limits::default() };
    let mut a = Arrivals::new(&of, Part::ALL, seat((0, 1)), Nanos(0));
    assert_eq!(until(&mut a, 10 * SECOND).len(), 1020);
    assert!(a.over(Nanos(SECOND)));
}

#[test]
fn a_bandwidth_is_reached_and_kept() {
    let weight = Arrival::Weight { weight: 1, spacing: Spacing::Constant };
    // At 10 kB per flow, 80 Mbit/s are 1000 flows/s.
    let of = Load { target: Some(Target::Bandwidth(80_000_000)), ..load([weight]) };
    let mut a = Arrivals::new(&of, Part::ALL, seat((0, 1)), Nanos(0));
    let (mut begun, mut at_five) = (0, 0);
    for ms in 1..=10_000 {
        let now = Nanos(ms * 1_000_000);
        while a.take(now, every).is_some() {
            begun += 1;
        }
        a.steer(now, || (begun * 10_000, begun));
        if ms == 5000 {
            at_five = begun;
        }
    }
    let rate = (begun - at_five) / 5;
    assert!((980..=1020).contains(&rate), "{rate}");
}

/// The arrivals of all workers together; each worker changes at the same time.
fn changed(old: &Load, new: &Load, workers: u64, at: u64, end: u64) -> Vec<Due> {
    old.can_become(new).expect("only rates differ");
    let mut all = Vec::new();
    for worker in 0..workers {
        let mut a = Arrivals::new(old, Part::ALL, seat((worker, workers)), Nanos(0));
        all.extend(until_of(&mut a, at, (worker, workers)));
        a.change(Nanos(at), new);
        all.extend(until_of(&mut a, end, (worker, workers)));
    }
    all
}

#[test]
fn a_rate_changes_from_the_next_gap_on_and_no_flow_is_due_twice() {
    for spacing in [Spacing::Constant, Spacing::Poisson] {
        let of = |a, b| {
            let open = |cps| Arrival::Open { cps: Cps::per_second(cps), spacing };
            load([open(a), open(b)])
        };
        for workers in [1, 3] {
            let all = changed(&of(1000, 500), &of(4000, 500), workers, 2 * SECOND, 4 * SECOND);
            let count = |template| all.iter().filter(|due| due.template == template).count() as i64;
            assert!(
                (count(0) - 10_000).abs() < 400 && (count(1) - 2000).abs() < 200,
                "{} {}",
                count(0),
                count(1)
            );
            let mut numbers: Vec<_> = all.iter().map(|due| (due.template, due.number)).collect();
            numbers.sort_unstable();
            numbers.dedup();
            assert_eq!(numbers.len(), all.len());
        }
    }
    // An arrival that is an hour away moves closer when the rate rises.
    let slow = Arrival::Open { cps: Cps { num: 1, den: 3600 }, spacing: Spacing::Constant };
    assert_eq!(changed(&load([slow]), &load([open(10)]), 1, SECOND, 2 * SECOND).len(), 1 + 9);
}

#[test]
fn weights_targets_and_users_change_while_running() {
    let weight = |weight| Arrival::Weight { weight, spacing: Spacing::Constant };
    let of = |cps, a, b| Load {
        target: Some(Target::Cps(Cps::per_second(cps))),
        ..load([weight(a), weight(b)])
    };
    let all = changed(&of(1000, 1, 1), &of(3000, 2, 1), 2, SECOND, 2 * SECOND);
    let count = |template| all.iter().filter(|due| due.template == template).count() as i64;
    assert!(
        (count(0) - 2500).abs() < 5 && (count(1) - 1500).abs() < 5,
        "{} {}",
        count(0),
        count(1)
    );

    let users = |users| load([Arrival::Closed { users, think: Think::Fixed(Nanos(0)) }]);
    let mut a = Arrivals::new(&users(10), Part::ALL, seat((0, 1)), Nanos(0));
    let take = |a: &mut Arrivals, now| std::iter::from_fn(|| a.take(Nanos(now), every)).count();
    assert_eq!(take(&mut a, 1), 10);
    a.change(Nanos(2), &users(4));
    (0..10).for_each(|_| a.ended(0, Nanos(3)));
    assert_eq!(take(&mut a, 4), 4, "six have gone home");
    a.change(Nanos(5), &users(7));
    assert_eq!(take(&mut a, 6), 3, "three have come");
}

#[test]
fn changes_other_than_rates_are_refused() {
    let differs = |new: &Load| load([open(1)]).can_become(new).expect_err("it differs");
    let fewer = load([open(1), open(2)]).can_become(&load([open(1)]));
    assert!(fewer.is_err_and(|text| text.contains("number of templates")));
    assert!(differs(&load([Arrival::None])).contains("\"t\""));
    assert!(differs(&Load { seed: 9, ..load([open(1)]) }).contains("seed"));
    let mut other = load([open(1)]);
    other.templates[0].port = 99;
    assert!(differs(&other).contains("\"t\""));
    assert_eq!(load([open(1)]).can_become(&load([open(7)])), Ok(()));
}

#[test]
fn a_pause_moves_what_is_still_to_come() {
    let of = load([open(1000), open(100)]);
    let mut a = Arrivals::new(&of, Part::ALL, seat((0, 1)), Nanos(0));
    let before = until(&mut a, SECOND);
    a.pause(Nanos(SECOND), Some(0));
    let between = until(&mut a, 3 * SECOND);
    assert!(between.iter().all(|due| due.template == 1) && between.len() == 200);
    a.resume(Nanos(3 * SECOND), None);
    let after = until(&mut a, 4 * SECOND);
    let all: Vec<_> = [before, between, after].concat();
    let numbers: Vec<_> =
        all.iter().filter(|due| due.template == 0).map(|due| due.number).collect();
    assert_eq!(numbers, (0..2000).collect::<Vec<_>>());
    assert_eq!((a.late(0), a.late(1)), (0, 0));
}

#[test]
fn the_numbers_of_a_limited_closed_loop_are_each_below_the_limit_once() {
    // Users and workers: fewer users than workers, as many, and more.
    for (users, workers) in [(1, 3), (2, 2), (5, 3), (7, 2)] {
        for limit in [1, 2, 7, 10] {
            let closed = Arrival::Closed { users, think: Think::Fixed(Nanos::ZERO) };
            let mut load = load([closed]);
            load.templates[0].limit = Some(limit);
            let mut numbers = Vec::new();
            for worker in 0..workers {
                let mut arrivals =
                    Arrivals::new(&load, Part::ALL, seat((worker, workers)), Nanos::ZERO);
                for due in until(&mut arrivals, 1) {
                    numbers.push(due.number);
                }
                while let Some(due) = {
                    arrivals.ended(0, Nanos(1));
                    arrivals.take(Nanos(1), every)
                } {
                    numbers.push(due.number);
                }
            }
            numbers.sort_unstable();
            assert_eq!(numbers, (0..limit).collect::<Vec<_>>(), "{users} {workers}");
        }
    }
}

#[test]
fn templates_that_share_open_flows_each_count_their_own_and_one_that_ends_leaves_the_rest() {
    let weight = |weight| Arrival::Weight { weight, spacing: Spacing::Constant };
    let mut load = load([weight(3), weight(1)]);
    load.target = Some(Target::Active(6));
    load.templates[0].limit = Some(20);
    let mut numbers = [Vec::new(), Vec::new()];
    for worker in 0..2 {
        let mut arrivals = Arrivals::new(&load, Part::ALL, seat((worker, 2)), Nanos::ZERO);
        let mut open = VecDeque::from(until(&mut arrivals, 1));
        for turn in 1..200 {
            let Some(due) = open.pop_front() else { break };
            numbers[due.template].push(due.number);
            arrivals.ended(due.template, Nanos(turn));
            open.extend(arrivals.take(Nanos(turn), every));
        }
        assert_eq!(open.len(), 3, "nobody has gone home");
    }
    numbers.iter_mut().for_each(|numbers| numbers.sort_unstable());
    assert_eq!(numbers[0], (0..20).collect::<Vec<_>>());
    assert!(numbers[1].windows(2).all(|pair| pair[0] < pair[1]), "{:?}", numbers[1]);
}

/// Up, steady, down in a step, a pause, and up again.
fn staged(users: u64) -> Shape {
    let stage = |ms: u64, to: u64| Stage { lasts: Nanos(ms * 1_000_000), to };
    let stages = [
        stage(500, users),
        stage(300, users),
        stage(0, users / 3),
        stage(700, users / 2),
        stage(0, 0),
    ];
    let stages: Vec<_> = stages.into_iter().chain([stage(250, 0), stage(250, users)]).collect();
    Shape::new(&stages, users).unwrap()
}

#[test]
fn workers_together_begin_by_stages_what_one_does() {
    let poisson = Arrival::Open { cps: Cps::per_second(700), spacing: Spacing::Poisson };
    let closed = Arrival::Closed { users: 9, think: Think::Fixed(Nanos(1)) };
    let mut of = load([open(3333), poisson, open(100), closed]);
    of.templates[0].shape = Some(staged(3333));
    of.templates[1].shape = Some(staged(700));
    of.templates[1].start = Nanos(SECOND / 7);
    of.templates[3].shape = Some(staged(9));
    let run = |worker, workers| {
        let mut arrivals = Arrivals::new(&of, Part::ALL, seat((worker, workers)), Nanos(9));
        until_of(&mut arrivals, 5 * SECOND, (worker, workers))
    };
    let key = |due: &Due| (due.template, due.number, due.at);
    let mut one = run(0, 1);
    one.sort_by_key(key);
    for workers in [2, 3, 5] {
        let mut many: Vec<_> = (0..workers).flat_map(|worker| run(worker, workers)).collect();
        many.sort_by_key(key);
        assert_eq!(one, many, "{workers}");
    }
    // Per template: half of 500 ms, 300 ms, 700 ms from a third to a half, half of 250 ms; the
    // others continue.
    let count = |template| one.iter().filter(|due| due.template == template).count();
    let exact: f64 = 3333.0 * (0.25 + 0.3 + 0.7 * (1111.0 + 1666.0) / 2.0 / 3333.0 + 0.125);
    assert!((count(0) as f64 - exact).abs() <= 1.0, "{} {exact}", count(0));
    assert_eq!((count(2), count(3)), (500, 9));
    // The second template's stages start with it.
    let first = one.iter().find(|due| due.template == 1).unwrap();
    assert!(first.at.0 > SECOND / 7, "{first:?}");
}

#[test]
fn users_go_in_one_stage_and_come_again_in_another() {
    let closed = Arrival::Closed { users: 4, think: Think::Fixed(Nanos(10)) };
    let mut of = load([closed]);
    let stage = |lasts: u64, to: u64| Stage { lasts: Nanos(lasts), to };
    let stages = [stage(0, 4), stage(1000, 4), stage(0, 1), stage(1000, 1), stage(1000, 4)];
    of.templates[0].shape = Some(Shape::new(&stages, 4).unwrap());
    let mut a = Arrivals::new(&of, Part::ALL, seat((0, 1)), Nanos(0));
    let take = |a: &mut Arrivals, now| std::iter::from_fn(|| a.take(Nanos(now), every)).count();
    assert_eq!(take(&mut a, 0), 4);
    (0..4).for_each(|_| a.ended(0, Nanos(1500)));
    // One user thinks, and three have left until the load rises; then one joins every 333 ns.
    assert_eq!(take(&mut a, 1999), 1);
    assert_eq!([2001, 2334, 2667].map(|now| take(&mut a, now)), [1, 1, 1]);
    // The last stage is over, and so is the template.
    assert!(!a.over(Nanos(2999)));
    (0..4).for_each(|_| a.ended(0, Nanos(2995)));
    assert_eq!(take(&mut a, 9999), 0);
    assert!(a.over(Nanos(9999)));
}
