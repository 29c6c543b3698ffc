//! Counts the requests of a client program. The number is known in advance unless it depends on
//! chance or on the peer; a flow that ends early has made fewer.

use crate::code::Op;

/// Number of requests and answers from an operation to the end of the region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sum {
    requests: u64,
    answers: u64,
    /// Whether a request still waits for its answer at the end.
    asked: bool,
}

/// The sums, indexed by whether a request waits for its answer at the start; `None`: the number
/// varies.
type Sums = [Option<Sum>; 2];

/// Writes into each send how many requests it completes. Returns the number of requests of the
/// whole program, or `None` if there are none or the number is unknown. Redirects do not count.
pub fn count(ops: &mut [Op]) -> Option<u64> {
    for at in 0..ops.len() {
        let answers = answers_of(ops, at);
        if let Op::Send { requests, .. } = &mut ops[at] {
            *requests = answers;
        }
    }
    // Inner loops end before outer ones.
    let mut loops: Vec<(usize, u64, Sums)> = Vec::new();
    for at in 0..ops.len() {
        let Op::Again { register, to } = ops[at] else { continue };
        // The counter is set right before the first pass.
        let Some(&Op::Set { register: set, value }) = ops.get((to as usize).wrapping_sub(1)) else {
            return None;
        };
        if set != register {
            return None;
        }
        let pass = sums(ops, (to as usize, at), &loops);
        loops.push((at, value.into(), pass));
    }
    let all = sums(ops, (0, ops.len()), &loops)[0]?;
    (all.requests > 0 && all.requests == all.answers).then_some(all.requests)
}

/// Whether a program with a known number of requests has more to send or to wait for, from
/// operation `at` on. `passes`: the remaining passes of a counted loop, including the current one.
pub fn is_left(ops: &[Op], mut at: usize, passes: impl Fn(u8) -> u32) -> bool {
    let asks = |op: &Op| {
        matches!(op, Op::Send { .. } | Op::SendSlice { .. } | Op::HttpResponse { .. })
            || is_answer(op).is_some()
    };
    loop {
        match ops[at] {
            Op::Finish | Op::Reset => return false,
            Op::Jump { to } | Op::UnlessRedirect { to, .. } if to as usize > at => at = to as usize,
            Op::Jump { .. } => return false,
            Op::Again { register, to } => {
                if passes(register) > 1 && ops[to as usize..at].iter().any(asks) {
                    return true;
                }
                at += 1;
            }
            op if asks(&op) => return true,
            // Both branches have the same number of requests, so either may be taken.
            _ => at += 1,
        }
    }
}

/// Whether the operation waits for an answer; if so, whether for its last part.
fn is_answer(op: &Op) -> Option<bool> {
    match *op {
        Op::Recv { answered, .. }
        | Op::RecvUntil { answered, .. }
        | Op::RecvPackets { answered, .. }
        | Op::RecvPacketOctets { answered, .. }
        | Op::HttpResponse { answered, .. } => Some(answered),
        Op::GrpcStatus { .. } => Some(true),
        _ => None,
    }
}

/// The answers that an operation completes while a request waits, and whether a request waits after
/// it.
fn answer(op: &Op) -> Option<(u64, bool)> {
    let last = is_answer(op)?;
    // One read may complete the answers of several requests.
    let complete = last || matches!(op, Op::HttpResponse { .. });
    Some((u64::from(complete), !last))
}

/// Number of answers expected between the send at `at` and the next send.
fn answers_of(ops: &[Op], at: usize) -> u32 {
    if !matches!(ops[at], Op::Send { .. }) {
        return 0;
    }
    let (mut at, mut answers) = (at + 1, 0);
    loop {
        match &ops[at] {
            Op::Send { .. } | Op::SendSlice { .. } | Op::Again { .. } | Op::Finish | Op::Reset => {
                break;
            }
            &(Op::Jump { to } | Op::UnlessRedirect { to, .. }) => {
                if to as usize <= at {
                    break;
                }
                at = to as usize;
                continue;
            }
            op => {
                if let Some((more, asked)) = answer(op) {
                    answers += more as u32;
                    if !asked {
                        break;
                    }
                }
            }
        }
        at += 1;
    }
    answers
}

/// Sums from each operation of a region to the region's end; `loops`: the loops inside, by the
/// operation that ends them, with the number of passes and the sums of one pass.
fn sums(ops: &[Op], (from, end): (usize, usize), loops: &[(usize, u64, Sums)]) -> Sums {
    let nothing = |asked| Some(Sum { requests: 0, answers: 0, asked });
    let mut rest: Vec<Sums> = vec![[nothing(false), nothing(true)]; end - from + 1];
    for at in (from..end).rev() {
        let mut here = [None, None];
        for asked in [false, true] {
            let then = |to: usize, asked: bool| {
                (to > at && to <= end).then(|| rest[to - from][usize::from(asked)]).flatten()
            };
            let plus = |requests: u64, answers: u64, rest: Option<Sum>| {
                let rest = rest?;
                Some(Sum {
                    requests: rest.requests.checked_add(requests)?,
                    answers: rest.answers.checked_add(answers)?,
                    ..rest
                })
            };
            here[usize::from(asked)] = match ops[at] {
                Op::Send { requests, .. } => plus(requests.into(), 0, then(at + 1, true)),
                Op::SendSlice { .. } => then(at + 1, true),
                Op::GrpcCall { .. } => plus(1, 0, then(at + 1, true)),
                Op::Finish | Op::Reset => nothing(asked),
                Op::Jump { to } | Op::UnlessRedirect { to, .. } => then(to as usize, asked),
                Op::JumpIf { to, .. } => {
                    let (one, other) = (then(at + 1, asked), then(to as usize, asked));
                    one.filter(|_| one == other)
                }
                Op::Again { .. } => loops
                    .iter()
                    .find(|(ends, ..)| *ends == at)
                    .and_then(|(_, passes, pass)| {
                        let pass = pass[usize::from(asked)].filter(|pass| pass.asked == asked)?;
                        let more = passes.saturating_sub(1);
                        Some((pass.requests.checked_mul(more)?, pass.answers.checked_mul(more)?))
                    })
                    .and_then(|(requests, answers)| plus(requests, answers, then(at + 1, asked))),
                ref op => match answer(op).filter(|_| asked) {
                    Some((answers, asked)) => plus(0, answers, then(at + 1, asked)),
                    None => then(at + 1, asked),
                },
            };
        }
        rest[at - from] = here;
    }
    rest[0]
}

#[cfg(test)]
mod tests {
    use crate::{Program, Role, Transport, builtin, code::compile};

    fn requests(program: &Program) -> Option<u64> {
        compile(program).expect("a right program").programs[0].traits.requests
    }

    fn of(lines: &[&str]) -> Option<u64> {
        let lines = lines.iter().copied();
        let program = Program::parse("p", Role::Client, Transport::Tcp, lines, Default::default());
        requests(&program.expect("a right program"))
    }

    #[test]
    fn the_requests_of_a_program_are_known_before_it_runs() {
        for (lines, expected) in [
            (&["send \"a\"", "recv 1", "close"][..], Some(1)),
            // One answer in several parts.
            (&["send \"a\"", "recv 1", "recv 2"], Some(1)),
            // The server sends first.
            (&["recv 3", "send \"a\"", "recv 1"], Some(1)),
            (
                &["loop 3", "send \"a\"", "recv 1", "loop 4", "send \"b\"", "recv 1", "end", "end"],
                Some(15),
            ),
            (&["send \"head\"", "send \"body\"", "http_response"], Some(1)),
            (&["send \"two\"", "http_response", "http_response"], Some(2)),
            // No answer is expected.
            (&["send \"a\"", "close"], None),
            (&["loop forever", "send \"a\"", "recv 1", "end"], None),
            (&["set x 0", "loop until x > 3", "send \"a\"", "recv 1", "add x 1", "end"], None),
            // Depends on chance.
            (&["set x random 1 2", "jump out if x < 2", "send \"a\"", "recv 1", "label out"], None),
            (
                &[
                    "set x random 1 2",
                    "jump other if x < 2",
                    "send \"a\"",
                    "jump on",
                    "label other",
                    "send \"b\"",
                    "label on",
                    "recv 1",
                ],
                Some(1),
            ),
            // Answers that do not belong to a single send.
            (&["loop 3", "send \"a\"", "end", "recv 3"], None),
            // A request sent in parts, because of a rate.
            (&["rate 10 B every 100 ms", "send \"0123456789\"", "recv 1"], Some(1)),
        ] {
            assert_eq!(of(lines), expected, "{lines:?}");
        }
    }

    #[test]
    fn the_requests_of_built_in_clients_are_known() {
        let (exchange, _) = builtin::exchange("exchange", 10, 10, 7).expect("right");
        assert_eq!(requests(&exchange), Some(7));
        for (name, expected) in
            [("http", 3), ("http-get", 1), ("dns", 1), ("smtp", 6), ("video", 4)]
        {
            let app = builtin::application(name).expect(name);
            assert_eq!(requests(&app.client), Some(expected), "{name}");
        }
        assert_eq!(requests(&builtin::rtp(9).client), None);
        for (paths, pipeline, redirects) in
            [(1, 1, 0), (1, 3, 0), (4, 1, 0), (4, 3, 0), (4, 1, 5), (1, 1, 2)]
        {
            let client = builtin::HttpClient {
                paths: (0..paths).map(|i| (1 + i, format!("/{i}"))).collect(),
                requests: 10,
                pipeline,
                redirects,
                cookies: redirects > 0,
                ..builtin::HttpClient::default()
            };
            let program = client.program("http").expect("right");
            assert_eq!(requests(&program), Some(10), "{paths} {pipeline} {redirects}");
        }
    }
}
