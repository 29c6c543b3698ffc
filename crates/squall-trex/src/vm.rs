//! Translates a stream's instructions to varying fields, lengths and checksum updates.
//!
//! Each variable becomes a function of the packet's index, so any worker can make any packet. The
//! semantics of each instruction, including corner cases, are those of TRex v3.08.

use squall_profile::{FieldRef, Op, SizeLaw, Vary};
use squall_program::trex::MarkPlace;
use squall_units::{FCS_LEN, be16};
use squall_wire::{Frame, checksum};

use crate::{
    Problem,
    random::{Congruence, REPEATS},
    stream::{Instruction, SHORTEST, Stream, VarOp},
    tagged,
};

/// Maximum length of the list of values made from a variable.
const LONGEST_LIST: u64 = 1 << 20;

/// Length of the signature at the end of measured packets.
const SIGNATURE: usize = 16;

/// The translated packets of a stream.
#[derive(Debug)]
pub(crate) struct Made {
    pub packet: Vec<u8>,
    pub vary: Vec<Vary>,
    pub sizes: SizeLaw,
    /// Names of checksums that are updated when fields change.
    pub recompute: Vec<String>,
    /// Mean length without FCS.
    pub mean_len: f64,
    /// Whether the packets carry a signature.
    pub signed: bool,
}

/// A variable.
struct Var {
    name: String,
    octets: u8,
    op: Op,
    /// Index of the variable whose wrap advances this one.
    after: Option<usize>,
}

/// A variable written into the packet. The operation is the variable's.
struct Write {
    var: usize,
    made: Vary,
}

/// Translates `stream`, given its `packet` with MAC addresses. Measured packets carry a signature,
/// unless there is no room for it and TRex's mark can count them.
pub(crate) fn make(stream: &Stream, packet: Vec<u8>, measured: bool) -> Result<Made, Problem> {
    let instructions = clamped(stream, packet.len())?;
    // Like TRex, do not cache packets with latency.
    let cache = if stream.has_latency() { 0 } else { usize::from(stream.vm.cache) };
    let vars = variables(&instructions, stream.random_seed, cache > 0)?;
    let find = |name: &str| {
        vars.iter()
            .position(|var| var.name == name)
            .ok_or_else(|| Problem::new(format!("there is no variable {name:?}")))
    };
    let mut made = Made {
        mean_len: packet.len() as f64,
        packet,
        vary: Vec::new(),
        sizes: SizeLaw::Natural,
        recompute: Vec::new(),
        signed: false,
    };
    let mut writes = Vec::new();
    let mut fixes = Vec::new();
    for instruction in &instructions {
        match instruction {
            Instruction::WriteFlowVar { name, pkt_offset, add_value, is_big_endian } => {
                let var = find(name)?;
                let octets = usize::from(vars[var].octets);
                let mask = u64::MAX >> (64 - 8 * octets);
                let field = FieldRef::Offset { offset: *pkt_offset, octets, mask };
                let little_endian = !is_big_endian && octets > 1;
                let made = Vary { field, add: *add_value, little_endian, ..Vary::default() };
                writes.push(Write { var, made });
            }
            Instruction::WriteMaskFlowVar {
                name,
                pkt_offset,
                pkt_cast_size,
                mask,
                shift,
                add_value,
                is_big_endian,
            } => {
                let var = find(name)?;
                let octets = usize::from(*pkt_cast_size);
                if !matches!(octets, 1 | 2 | 4) {
                    return Err(Problem::new(format!(
                        "pkt_cast_size = {octets}: expected 1, 2 or 4"
                    )));
                }
                let mask = u64::from(*mask) & (u64::MAX >> (64 - 8 * octets));
                let whole = mask.count_ones() as usize == 8 * octets;
                let little_endian = !is_big_endian && octets > 1;
                if little_endian && !whole {
                    return Err(Problem::new(
                        "a mask in little-endian order cannot be written: use is_big = True",
                    ));
                }
                for run in runs(mask) {
                    let low = run.trailing_zeros() as i8;
                    let field = FieldRef::Offset { offset: *pkt_offset, octets, mask: run };
                    let shift = shift.saturating_sub(low).clamp(-63, 63);
                    let add = *add_value;
                    let made = Vary { field, add, shift, little_endian, ..Vary::default() };
                    writes.push(Write { var, made });
                }
            }
            Instruction::TrimPktSize { name } => {
                let lengths = lengths(&vars[find(name)?])?;
                made.mean_len = mean_len(&instructions, &vars[find(name)?]);
                made.sizes = SizeLaw::List(lengths.iter().map(|len| len + FCS_LEN).collect());
            }
            Instruction::FixChecksumIpv4 { pkt_offset } => {
                fixes.push(fix_ipv4(&mut made.packet, *pkt_offset)?);
            }
            Instruction::FixChecksumHw { l2_len, l3_len, .. } => {
                fixes.extend(fix_below(&mut made.packet, *l2_len, *l3_len)?);
            }
            Instruction::FixChecksumIcmpv6 { l2_len, l3_len } => {
                fixes.extend(fix_below(&mut made.packet, *l2_len, *l3_len)?);
            }
            Instruction::FlowVar { .. }
            | Instruction::FlowVarRandLimit { .. }
            | Instruction::TupleFlowVar { .. } => {}
        }
    }
    made.vary = varies(&vars, writes)?;
    if cache > 0 {
        repeat(&mut made, cache);
    }
    if let Some(group) = stream.tagged_group() {
        with_tag_header(&mut made, group)?;
    }
    let frame = Frame::dissect(made.packet.clone());
    made.signed = measured && is_signed(stream, &made, &frame)?;
    if made.signed && frame.trailer == 0 {
        // The signature at the end changes with each packet, too; no checksum covers padding.
        fixes.extend(frame.checksums.iter().map(|sum| sum.at));
    }
    fixes.sort_unstable();
    fixes.dedup();
    made.recompute = fixes.into_iter().map(|at| name_of(&frame, at)).collect::<Result<_, _>>()?;
    Ok(made)
}

/// Writes the header of a tagged packet group over the last octets. Each packet has the next
/// sequence number, in TRex from 0.
fn with_tag_header(made: &mut Made, group: u32) -> Result<(), Problem> {
    if made.sizes != SizeLaw::Natural {
        return Err(Problem::new(
            "packets of a tagged packet group have their header at a fixed place: expected one \
             length, without trim_pkt_size",
        ));
    }
    has_room(made, &Frame::dissect(made.packet.clone()))?;
    let at = made.packet.len() - tagged::HEADER;
    made.packet[at..].copy_from_slice(&tagged::header(group));
    made.vary.push(Vary {
        field: FieldRef::Offset { offset: at + tagged::SEQUENCE, octets: 4, mask: u32::MAX.into() },
        op: sequence_from(0),
        little_endian: true,
        ..Vary::default()
    });
    Ok(())
}

/// Sequence numbers from `first` on.
pub(crate) fn sequence_from(first: u32) -> Op {
    Op::Step { min: 0, max: u32::MAX.into(), init: first.into(), step: 1 }
}

/// Makes the packets repeat after the first `packets` packets.
fn repeat(made: &mut Made, packets: usize) {
    let ops: Vec<Op> = made.vary.iter().map(|vary| vary.op.clone()).collect();
    for vary in &mut made.vary {
        let values = (0..packets as u128).map(|index| at(&ops, &vary.op, index).0).collect();
        vary.op = Op::List { values, init: 0 };
    }
    if let SizeLaw::List(sizes) = &made.sizes {
        made.sizes = SizeLaw::List(sizes.iter().copied().cycle().take(packets).collect());
    }
}

/// Returns the value of `op` at packet `index`, and the number of wraps before it.
fn at(ops: &[Op], op: &Op, index: u128) -> (u128, u128) {
    match op {
        Op::Step { min, max, init, step } => {
            let (range, far) = (max - min + 1, step.unsigned_abs() * index);
            let (from, down) = if *step < 0 { (max - init, true) } else { (init - min, false) };
            let gone = (from + far) % range;
            (if down { max - gone } else { min + gone }, (from + far) / range)
        }
        Op::List { values, init } => {
            let (place, count) = (*init as u128 + index, values.len() as u128);
            (values[(place % count) as usize], place / count)
        }
        Op::After { of, then } => at(ops, then, at(ops, &ops[*of], index).1),
        Op::Random { .. } | Op::Weighted { .. } => {
            unreachable!("random numbers of packets that repeat are lists")
        }
    }
}

/// Whether measured packets carry a signature; otherwise TRex's mark counts them.
fn is_signed(stream: &Stream, made: &Made, frame: &Frame) -> Result<bool, Problem> {
    let Err(why) = has_room(made, frame) else { return Ok(true) };
    if stream.has_latency() {
        return Err(why);
    }
    let also = |text: &str| Err(Problem::new(format!("{why}; without, {text}")));
    let Some(place) = MarkPlace::of(frame) else {
        return also("TRex's mark needs an IP header after Ethernet, VLAN or MPLS");
    };
    let bits = |vary: &Vary| match &vary.field {
        FieldRef::Offset { offset, octets, mask } => {
            let end = (offset + octets) * 8;
            end - (64 - mask.leading_zeros() as usize)..end - mask.trailing_zeros() as usize
        }
        FieldRef::Name(_) => 0..0,
    };
    if made.vary.iter().any(|vary| place.overlaps(&bits(vary))) {
        return also(
            "no variable can be where TRex's mark is: the IPv4 identification and the lowest bit of \
             the type of service, or the IPv6 flow label and the lowest bit of the traffic class",
        );
    }
    Ok(false)
}

/// Checks that a signature fits into the shortest packet, after headers and variables.
fn has_room(made: &Made, frame: &Frame) -> Result<(), Problem> {
    let ends = made.vary.iter().filter_map(|vary| match &vary.field {
        FieldRef::Offset { offset, octets, .. } => Some(offset + octets),
        FieldRef::Name(_) => None,
    });
    let taken = ends.chain([frame.payload]).max().unwrap_or(0);
    let shortest = match &made.sizes {
        SizeLaw::List(sizes) => {
            sizes.iter().min().map_or(0, |size| size.saturating_sub(FCS_LEN) as usize)
        }
        _ => made.packet.len(),
    };
    let room = shortest.saturating_sub(taken);
    let free = match (frame.trailer, &made.sizes) {
        (0, _) => room,
        // With several lengths of padding, the signature at one length would be payload at another.
        (_, SizeLaw::List(_)) => 0,
        (padding, _) => padding.min(room),
    };
    match free >= SIGNATURE {
        true => Ok(()),
        false => Err(Problem::new(format!(
            "statistics need {SIGNATURE} octets of payload, and the packet has {free}: try a frame \
             of {} octets or more, FCS included",
            made.packet.len() + SIGNATURE - free + FCS_LEN as usize
        ))),
    }
}

/// The instructions, with length variables limited to 60 octets and the packet's length.
fn clamped(stream: &Stream, len: usize) -> Result<Vec<Instruction>, Problem> {
    let mut instructions = stream.vm.instructions.clone();
    let trims: Vec<String> = instructions
        .iter()
        .filter_map(|instruction| match instruction {
            Instruction::TrimPktSize { name } => Some(name.clone()),
            _ => None,
        })
        .collect();
    let (least, most) = (SHORTEST as u64, len as u64);
    for instruction in &mut instructions {
        match instruction {
            Instruction::FlowVar {
                name,
                size,
                init_value,
                min_value,
                max_value,
                value_list,
                ..
            } if trims.contains(name) => {
                if *size != 2 {
                    return Err(Problem::new(format!(
                        "{name:?} is a length and has {size} octets: expected 2"
                    )));
                }
                match value_list {
                    Some(values) => {
                        if let Some(wrong) = values.iter().find(|len| !(least..=most).contains(len))
                        {
                            return Err(Problem::new(format!(
                                "{name:?} has a length of {wrong}: expected {least} to {most}, the \
                                 length of the packet"
                            )));
                        }
                    }
                    None => {
                        (*min_value, *max_value) = ((*min_value).min(most), (*max_value).min(most));
                        if min_value >= max_value {
                            return Err(Problem::new(format!(
                                "{name:?} has lengths from {min_value} to {max_value}: the packet is \
                                 shorter"
                            )));
                        }
                        *min_value = (*min_value).max(least);
                        *init_value = (*init_value).clamp(*min_value, *max_value);
                    }
                }
            }
            Instruction::FlowVarRandLimit { name, .. } | Instruction::TupleFlowVar { name, .. }
                if trims.iter().any(|trim| trim.split('.').next() == Some(name)) =>
            {
                return Err(Problem::new(format!(
                    "{name:?} cannot be a length: only a flow_var can"
                )));
            }
            _ => {}
        }
    }
    Ok(instructions)
}

fn variables(instructions: &[Instruction], seed: u32, repeats: bool) -> Result<Vec<Var>, Problem> {
    let mut vars: Vec<Var> = Vec::new();
    // `next_var` of the preceding variable, and whether that one is constant at first.
    let mut chain: Option<(String, bool)> = None;
    let mut drawn = drawn(instructions, seed, repeats).into_iter();
    let alone = |chain: &mut Option<(String, bool)>| match chain.take() {
        Some((next, _)) => {
            Err(Problem::new(format!("next_var = {next:?} is not the next instruction")))
        }
        None => Ok(()),
    };
    for instruction in instructions {
        let (name, octets, mut op, next, wraps_first) = match instruction {
            Instruction::FlowVar {
                name,
                size,
                op,
                init_value,
                min_value,
                max_value,
                value_list,
                step,
                next_var,
            } => {
                octets_of(name, *size)?;
                let random = *op == VarOp::Random;
                if random {
                    let op = drawn.next().expect("one for each random variable");
                    (name.clone(), *size, op, None, true)
                } else {
                    let next = next_var.clone().filter(|next| !next.is_empty());
                    if *step == 0 {
                        return Err(Problem::new(format!("{name:?}: step cannot be 0")));
                    }
                    let (law, wraps) = match value_list {
                        Some(values) => (listed(name, *op, values, *step, next.is_some())?, true),
                        None => stepped(name, *op, (*init_value, *min_value, *max_value), *step)?,
                    };
                    (name.clone(), *size, law, next, wraps)
                }
            }
            Instruction::FlowVarRandLimit {
                name,
                size,
                seed,
                limit,
                min_value,
                max_value,
                next_var,
            } => {
                octets_of(name, *size)?;
                ordered(name, *min_value, *max_value)?;
                let next = next_var.clone().filter(|next| !next.is_empty());
                let linked = next.is_some() || chain.is_some();
                let op = rand_limit(name, *size, *seed, *limit, (*min_value, *max_value), linked)?;
                (name.clone(), *size, op, next, false)
            }
            Instruction::TupleFlowVar {
                name,
                ip_min,
                ip_max,
                port_min,
                port_max,
                limit_flows,
                flags,
            } => {
                let ports = if flags & 1 == 1 { (1025, u16::MAX) } else { (*port_min, *port_max) };
                let limit = if flags & 1 == 1 { 0 } else { *limit_flows };
                tuple(name, (*ip_min, *ip_max), ports, limit, &mut vars)?;
                alone(&mut chain)?;
                continue;
            }
            _ => {
                alone(&mut chain)?;
                continue;
            }
        };
        if vars.iter().any(|var| var.name == name) {
            return Err(Problem::new(format!("there are two variables {name:?}")));
        }
        let mut after = None;
        let mut still = false;
        if let Some((expected, stands)) = chain.take() {
            if expected != name {
                return Err(Problem::new(format!(
                    "next_var = {expected:?}, but the next instruction is {name:?}"
                )));
            }
            after = Some(vars.len() - 1);
            still = stands;
            if still {
                one_back(&mut op);
            }
        }
        chain = next.map(|next| (next, still || !wraps_first));
        vars.push(Var { name, octets, op, after });
    }
    alone(&mut chain)?;
    Ok(vars)
}

fn octets_of(name: &str, octets: u8) -> Result<(), Problem> {
    match matches!(octets, 1 | 2 | 4 | 8) {
        true => Ok(()),
        false => Err(Problem::new(format!("{name:?} has {octets} octets: expected 1, 2, 4 or 8"))),
    }
}

fn ordered(name: &str, min: u64, max: u64) -> Result<(), Problem> {
    match min <= max {
        true => Ok(()),
        false => {
            Err(Problem::new(format!("{name:?} goes from {min} to {max}: expected min <= max")))
        }
    }
}

/// Random values that repeat after `limit` values: TRex's own values if their list is short enough,
/// otherwise the same number of Squall's.
fn rand_limit(
    name: &str,
    size: u8,
    seed: u64,
    limit: u64,
    (min, max): (u64, u64),
    linked: bool,
) -> Result<Op, Problem> {
    if limit == 0 || linked && limit > LONGEST_LIST {
        let expected = if linked { format!("1 to {LONGEST_LIST}") } else { "1 or more".into() };
        return Err(Problem::new(format!("{name:?}: limit = {limit}: expected {expected}")));
    }
    if limit > LONGEST_LIST {
        return Ok(Op::Random {
            min: min.into(),
            max: max.into(),
            limit: Some(limit),
            seed: Some(seed),
        });
    }
    let mut random = Congruence::new(seed);
    let values = (0..limit).map(|_| u128::from(random.within(size, min, max))).collect();
    Ok(Op::List { values, init: 0 })
}

/// Increments or decrements over a range extended to whole steps; also returns whether the first
/// value follows a wrap.
fn stepped(
    name: &str,
    op: VarOp,
    (init, min, max): (u64, u64, u64),
    step: u64,
) -> Result<(Op, bool), Problem> {
    ordered(name, min, max)?;
    if !(min..=max).contains(&init) {
        return Err(Problem::new(format!("{name:?} begins with {init}: expected {min} to {max}")));
    }
    let (init, mut min, mut max) = (u128::from(init), u128::from(min), u128::from(max));
    let step = u128::from(step);
    let left = (max - min + 1) % step;
    if left != 0 {
        let wider = step - left;
        match op {
            VarOp::Dec if wider > min => {
                return Err(Problem::new(format!(
                    "{name:?} cannot be widened to whole steps of {step}: it would begin below 0"
                )));
            }
            VarOp::Dec => min -= wider,
            _ => max += wider,
        }
    }
    let (wraps, step) = match op {
        VarOp::Dec => (max - init < step, -(step as i128)),
        _ => (init - min < step, step as i128),
    };
    Ok((Op::Step { min, max, init, step }, wraps))
}

fn listed(name: &str, op: VarOp, values: &[u64], step: u64, leads: bool) -> Result<Op, Problem> {
    let len = values.len();
    if len == 0 || len > usize::from(u16::MAX) {
        return Err(Problem::new(format!("{name:?} has {len} values: expected 1 to 65535")));
    }
    if step > len as u64 || (leads && step != 1) {
        return Err(Problem::new(format!("{name:?}: step = {step} is too large for {len} values")));
    }
    let step = step as usize % len;
    let mut place = if op == VarOp::Dec { len - 1 } else { 0 };
    let mut in_order = Vec::with_capacity(len);
    for _ in 0..len {
        in_order.push(u128::from(values[place]));
        place = if op == VarOp::Dec { (place + len - step) % len } else { (place + step) % len };
    }
    Ok(Op::List { values: in_order, init: 0 })
}

/// Values of random variables: all variables of a stream draw from one sequence, packet by packet.
fn drawn(instructions: &[Instruction], seed: u32, repeats: bool) -> Vec<Op> {
    let trimmed = |name: &str| {
        let trims =
            |i: &Instruction| matches!(i, Instruction::TrimPktSize { name: by } if by == name);
        instructions.iter().any(trims)
    };
    let random: Vec<_> = instructions
        .iter()
        .filter_map(|instruction| match instruction {
            Instruction::FlowVar {
                name,
                size,
                op: VarOp::Random,
                min_value,
                max_value,
                value_list,
                ..
            } => Some((name, *size, *min_value, (*max_value).max(*min_value), value_list)),
            _ => None,
        })
        .collect();
    let listed = repeats
        || seed != 0
        || random.iter().any(|(name, .., list)| list.is_some() || trimmed(name));
    if !listed {
        let number = |(i, (_, _, min, max, _)): (usize, &(_, u8, u64, u64, _))| Op::Random {
            min: u128::from(*min),
            max: u128::from(*max),
            limit: None,
            seed: Some(i as u64 + 1),
        };
        return random.iter().enumerate().map(number).collect();
    }
    let mut sequence = Congruence::of_stream(if seed == 0 { 0x5ca1_ab1e } else { seed });
    let mut values = vec![Vec::with_capacity(REPEATS); random.len()];
    for _ in 0..REPEATS {
        for ((_, size, min, max, list), values) in random.iter().zip(&mut values) {
            values.push(u128::from(match list {
                Some(list) if !list.is_empty() => list[sequence.below(list.len())],
                _ => sequence.within(*size, *min, *max),
            }));
        }
    }
    values.into_iter().map(|values| Op::List { values, init: 0 }).collect()
}

/// Addresses that cycle, and ports that advance with each cycle, for at most `limit` flows.
fn tuple(
    name: &str,
    (ip_min, mut ip_max): (u32, u32),
    (port_min, mut port_max): (u16, u16),
    limit: u64,
    vars: &mut Vec<Var>,
) -> Result<(), Problem> {
    ordered(name, ip_min.into(), ip_max.into())?;
    ordered(name, port_min.into(), port_max.into())?;
    let addresses = u64::from(ip_max - ip_min) + 1;
    let ports = u64::from(port_max - port_min) + 1;
    let up = |min: u64, max: u64| Op::Step {
        min: min.into(),
        max: max.into(),
        init: min.into(),
        step: 1,
    };
    let named = |part: &str| format!("{name}.{part}");
    let mut put = |ip, port, after: bool| {
        let leader = vars.len();
        vars.push(Var { name: named("ip"), octets: 4, op: ip, after: None });
        let after = after.then_some(leader);
        vars.push(Var { name: named("port"), octets: 2, op: port, after });
    };
    if limit == 0
        || limit >= addresses * ports
        || limit.is_multiple_of(addresses)
        || limit < addresses
    {
        if limit != 0 && limit < addresses {
            (ip_max, port_max) = (ip_min + (limit - 1) as u32, port_min);
        } else if limit != 0 && limit < addresses * ports {
            port_max = port_min + (limit / addresses - 1) as u16;
        }
        put(
            up(ip_min.into(), ip_max.into()),
            up(port_min.into(), port_max.into()),
            port_min != port_max,
        );
        return Ok(());
    }
    if limit > LONGEST_LIST {
        return Err(Problem::new(format!(
            "{name:?}: limit_flows = {limit} is no multiple of {addresses} addresses and above \
             {LONGEST_LIST}"
        )));
    }
    let list = |value: &dyn Fn(u64) -> u64| Op::List {
        values: (0..limit).map(|k| u128::from(value(k))).collect(),
        init: 0,
    };
    let ip = list(&|k| u64::from(ip_min) + k % addresses);
    let port = list(&|k| u64::from(port_min) + k / addresses % ports);
    put(ip, port, false);
    Ok(())
}

/// Moves an operation back by one packet.
fn one_back(op: &mut Op) {
    match op {
        Op::Step { min, max, init, step } => {
            let (far, range) = (step.unsigned_abs(), *max - *min + 1);
            let off = *init - *min;
            let back =
                if *step < 0 { (off + far) % range } else { (off + range - far % range) % range };
            *init = *min + back;
        }
        Op::List { values, init } => *init = (*init + values.len() - 1) % values.len(),
        _ => {}
    }
}

/// Lengths without FCS, in the order of packets.
fn lengths(var: &Var) -> Result<Vec<u32>, Problem> {
    if var.after.is_some() {
        return Err(Problem::new(format!(
            "{:?} is a length and the next_var of another",
            var.name
        )));
    }
    match &var.op {
        Op::List { values, .. } => Ok(values.iter().map(|value| *value as u32).collect()),
        Op::Step { min, max, init, step } => {
            let (far, range) = (step.unsigned_abs(), *max - *min + 1);
            let count = range / far;
            let place = |k: u128| {
                let off = *init - *min;
                let gone = k * far % range;
                let at =
                    if *step < 0 { (off + range - gone) % range } else { (off + gone) % range };
                (*min + at) as u32
            };
            Ok((0..count).map(place).collect())
        }
        _ => Err(Problem::new(format!("{:?} cannot be a length", var.name))),
    }
}

/// The mean length that TRex assumes for rates in bits: the middle of the range for steps, the mean
/// of a sample for random lengths.
fn mean_len(instructions: &[Instruction], var: &Var) -> f64 {
    const SAMPLE: u32 = 10_000;
    let made = |instruction: &&Instruction| matches!(instruction, Instruction::FlowVar { name, .. } if *name == var.name);
    match (instructions.iter().find(made), &var.op) {
        (Some(Instruction::FlowVar { value_list: Some(values), .. }), _) if !values.is_empty() => {
            values.iter().sum::<u64>() as f64 / values.len() as f64
        }
        (_, Op::Step { min, max, .. }) => (min + max) as f64 / 2.0,
        (Some(Instruction::FlowVar { min_value, max_value, .. }), _) => {
            let mut random = Congruence::new(1);
            let range = max_value - min_value;
            let sum: u64 = (0..SAMPLE).map(|_| random.within(2, 0, range)).sum();
            *min_value as f64 + sum as f64 / f64::from(SAMPLE)
        }
        _ => unreachable!("a length is a flow_var"),
    }
}

/// Splits a mask into contiguous runs of one bits.
fn runs(mut mask: u64) -> Vec<u64> {
    let mut runs = Vec::new();
    while mask != 0 {
        let low = mask.trailing_zeros();
        let ones = (mask >> low).trailing_ones();
        let run = (u64::MAX >> (64 - ones)) << low;
        runs.push(run);
        mask &= !run;
    }
    runs
}

/// Orders variables so that each follows the variables it depends on.
fn varies(vars: &[Var], mut writes: Vec<Write>) -> Result<Vec<Vary>, Problem> {
    // A later write at the same offset replaces an earlier one.
    let replaced = |i: usize, writes: &[Write]| {
        writes[i + 1..].iter().any(|later| later.made.field == writes[i].made.field)
    };
    let kept: Vec<bool> = (0..writes.len()).map(|i| !replaced(i, &writes)).collect();
    let mut kept = kept.into_iter();
    writes.retain(|_| kept.next() == Some(true));
    writes.sort_by_key(|write| write.var);
    let mut done: Vec<Vary> = Vec::new();
    let mut places = vec![None; vars.len()];
    for mut write in writes {
        let var = &vars[write.var];
        let op = match var.after {
            None => var.op.clone(),
            Some(leader) => {
                let of = places[leader].ok_or_else(|| {
                    Problem::new(format!(
                        "{:?} follows {:?}, which is not written into the packet",
                        var.name, vars[leader].name
                    ))
                })?;
                Op::After { of, then: Box::new(var.op.clone()) }
            }
        };
        places[write.var].get_or_insert(done.len());
        // TRex truncates values to the field.
        let FieldRef::Offset { mask, .. } = write.made.field else {
            unreachable!("fields have offsets")
        };
        let bits = mask.count_ones();
        let most = match &var.op {
            Op::Step { max, .. } | Op::Random { max, .. } => *max,
            Op::List { values, .. } => values.iter().copied().max().unwrap_or(0),
            Op::Weighted { .. } | Op::After { .. } => 0,
        };
        let beyond = most >> bits != 0;
        let Vary { add, shift, little_endian, .. } = &mut write.made;
        if beyond && (*add, *shift, *little_endian) == (0, 0, false) {
            // Adds a bit beyond the field, whose only effect is the truncation.
            *add = 1 << 62;
        }
        done.push(Vary { op, ..write.made });
    }
    Ok(done)
}

/// Sets an IPv4 header's checksum; returns its offset.
fn fix_ipv4(packet: &mut [u8], offset: usize) -> Result<usize, Problem> {
    let wrong =
        || Problem::new(format!("fix_checksum_ipv4: there is no IPv4 header at octet {offset}"));
    let first = *packet.get(offset).ok_or_else(wrong)?;
    let len = usize::from(first & 15) * 4;
    if first >> 4 != 4 || len < 20 || packet.len() < offset + len {
        return Err(wrong());
    }
    let at = offset + 10;
    packet[at..at + 2].fill(0);
    let sum = !checksum::fold(checksum::sum(&packet[offset..offset + len]));
    packet[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    Ok(at)
}

/// Sets the checksums of an IP header and of the TCP, UDP or ICMPv6 header after it; returns their
/// offsets.
fn fix_below(packet: &mut [u8], l3: usize, l3_len: usize) -> Result<Vec<usize>, Problem> {
    let wrong =
        |what: &str| Problem::new(format!("fix_checksum: there is no {what} at octet {l3}"));
    let version = *packet.get(l3).ok_or_else(|| wrong("IP header"))? >> 4;
    let mut places = Vec::new();
    let (pseudo, protocol, l3_len, end) = match version {
        4 => {
            places.push(fix_ipv4(packet, l3)?);
            let len = usize::from(packet[l3] & 15) * 4;
            let total = usize::from(be16(packet, l3 + 2));
            (l3 + 12..l3 + 20, packet[l3 + 9], len, l3 + total)
        }
        6 if packet.len() >= l3 + 40 => {
            let payload = usize::from(be16(packet, l3 + 4));
            let next = if l3_len == 40 { packet[l3 + 6] } else { last_header(packet, l3, l3_len) };
            (l3 + 8..l3 + 40, next, l3_len, l3 + 40 + payload)
        }
        _ => return Err(wrong("IP header")),
    };
    let l4 = l3 + l3_len;
    let at = l4
        + match protocol {
            6 => 16,
            17 => 6,
            58 => 2,
            _ => return Ok(places),
        };
    let end = end.min(packet.len());
    if at + 2 > end {
        return Err(wrong("whole TCP, UDP or ICMPv6 header"));
    }
    packet[at..at + 2].fill(0);
    let whole = checksum::sum(&packet[pseudo])
        + u64::from(protocol)
        + (end - l4) as u64
        + checksum::sum(&packet[l4..end]);
    let sum = match !checksum::fold(whole) {
        0 if protocol == 17 => 0xffff,
        sum => sum,
    };
    packet[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    places.push(at);
    Ok(places)
}

/// The upper-layer protocol after the IPv6 extension headers.
fn last_header(packet: &[u8], l3: usize, l3_len: usize) -> u8 {
    let (mut next, mut at) = (packet[l3 + 6], l3 + 40);
    while at + 2 <= packet.len() && at < l3 + l3_len {
        next = packet[at];
        at += 8 + 8 * usize::from(packet[at + 1]);
    }
    next
}

/// The name of the checksum at octet `at`.
fn name_of(frame: &Frame, at: usize) -> Result<String, Problem> {
    let of = |layer: &squall_wire::LayerAt| (layer.offset..layer.offset + layer.len).contains(&at);
    let layer = frame.layers.iter().find(|layer| of(layer)).ok_or_else(|| {
        Problem::new(format!("the checksum at octet {at} is in no header that is known"))
    })?;
    let same = frame.layers.iter().filter(|other| other.header.name == layer.header.name);
    let index = same.take_while(|other| other.offset != layer.offset).count();
    Ok(format!("{}[{index}].checksum", layer.header.name))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// A UDP packet of 82 octets with valid checksums.
    const PACKET: &str = "AAAAAQAAAAAAAgAACABFAABEAAEAAEAR+qQQAAABMAAAAQQBAAwAMAAAeHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4";

    fn stream(instructions: Value) -> Stream {
        Stream::read(&json!({
            "mode": { "type": "continuous", "rate": { "type": "pps", "value": 1 } },
            "packet": { "binary": PACKET }, "vm": { "instructions": instructions },
        }))
        .expect("a stream")
    }

    fn made(instructions: Value) -> Result<Made, Problem> {
        let stream = stream(instructions);
        make(&stream, stream.packet.binary.clone(), false)
    }

    fn var(name: &str, op: &str, range: (u64, u64, u64), step: u64, next: Option<&str>) -> Value {
        json!({ "type": "flow_var", "name": name, "size": 2, "op": op, "init_value": range.0,
            "min_value": range.1, "max_value": range.2, "step": step, "next_var": next })
    }

    fn write(name: &str, offset: usize) -> Value {
        json!({ "type": "write_flow_var", "name": name, "pkt_offset": offset, "add_value": 0,
            "is_big_endian": true })
    }

    #[test]
    fn ranges_are_widened_to_whole_steps_and_keep_their_first_value() {
        let up =
            made(json!([var("v", "inc", (12, 10, 20), 4, None), write("v", 50)])).expect("sound");
        assert_eq!(up.vary[0].op, Op::Step { min: 10, max: 21, init: 12, step: 4 });
        let down =
            made(json!([var("v", "dec", (20, 10, 20), 4, None), write("v", 50)])).expect("sound");
        assert_eq!(down.vary[0].op, Op::Step { min: 9, max: 20, init: 20, step: -4 });
        let below = made(json!([var("v", "dec", (1, 0, 1), 4, None), write("v", 50)]));
        assert!(below.expect_err("below 0").to_string().contains("below 0"));
    }

    #[test]
    fn a_following_variable_is_constant_until_its_leader_wraps() {
        let chain = |init| {
            let vars =
                [var("a", "inc", (init, 1, 3), 1, Some("b")), var("b", "inc", (5, 5, 6), 1, None)];
            let vm = json!([vars[0], vars[1], write("b", 52), write("a", 50)]);
            made(vm).expect("sound").vary
        };
        // In dependency order, regardless of the order of writes.
        assert!(
            matches!(&chain(1)[1].op, Op::After { of: 0, then } if **then == Op::Step { min: 5, max: 6, init: 5, step: 1 })
        );
        // Until the first wrap, the second variable must begin one step before its first value.
        assert!(
            matches!(&chain(2)[1].op, Op::After { of: 0, then } if **then == Op::Step { min: 5, max: 6, init: 6, step: 1 })
        );
        let separate = json!([var("a", "inc", (1, 1, 3), 1, Some("b")), write("a", 50)]);
        assert!(made(separate).expect_err("no b").to_string().contains("next"));
    }

    #[test]
    fn long_random_sequences_are_laws_and_short_ones_are_lists() {
        let random = |limit: u64, next: Option<&str>| {
            let random = json!({ "type": "flow_var_rand_limit", "name": "v", "size": 4, "seed": 3,
                "limit": limit, "min_value": 5, "max_value": 9, "next_var": next });
            made(json!([random, write("v", 50)])).map(|made| made.vary[0].op.clone())
        };
        let Ok(Op::List { values, .. }) = random(1 << 20, None) else { panic!("a list") };
        assert_eq!(values.len(), 1 << 20);
        let law = Op::Random { min: 5, max: 9, limit: Some((1 << 24) - 1), seed: Some(3) };
        assert_eq!(random((1 << 24) - 1, None), Ok(law));
        let linked = random((1 << 24) - 1, Some("w")).expect_err("no list can be this long");
        assert!(linked.to_string().contains("expected 1 to 1048576"), "{linked}");
        assert!(random(0, None).is_err());
    }

    #[test]
    fn packets_without_room_for_a_signature_are_counted_by_a_mark_or_refused() {
        let of = |vm, rule: &str| {
            let mut stream = stream(vm);
            (stream.flow_stats.enabled, stream.flow_stats.rule_type) = (true, rule.into());
            stream
        };
        let make = |stream: &Stream| make(stream, stream.packet.binary.clone(), true);
        let signed = |vm, rule| make(&of(vm, rule)).map(|made| made.signed);
        assert_eq!(signed(json!([]), "latency"), Ok(true));
        let at = |offset: usize| json!([var("v", "inc", (1, 1, 3), 1, None), write("v", offset)]);
        assert_eq!(signed(at(63), "latency"), Ok(true));
        // A variable occupies the octets of the signature.
        assert_eq!(signed(at(64), "stats"), Ok(false));
        let late = signed(at(64), "latency").expect_err("latency needs a signature");
        assert!(late.to_string().contains("the packet has 15"), "{late}");
        let trim = |least: u64| {
            let trim = json!({ "type": "trim_pkt_size", "name": "v" });
            json!([var("v", "inc", (least, least, 81), 1, None), trim])
        };
        assert_eq!(signed(trim(61), "stats"), Ok(true), "19 octets of payload and more");
        let mut long = of(json!([]), "latency");
        // The IPv6 packet has 60 octets, 6 of them payload.
        long.packet.binary = [&[0; 12][..], &[0x86, 0xdd, 0x60, 0, 0, 0, 0, 6, 59, 64]].concat();
        long.packet.binary.resize(60, 0);
        let short = make(&long).map(|_| ()).expect_err("too short");
        assert!(short.to_string().contains("has 6: try a frame of 74"), "{short}");
        // An IPv4 header alone: 26 octets of padding.
        let mut padded = long.clone();
        padded.packet.binary = [&[0; 12][..], &[8, 0, 0x45, 0, 0, 20]].concat();
        padded.packet.binary.resize(60, 0);
        padded.packet.binary[22..24].copy_from_slice(&[64, 0]);
        let made = make(&padded).expect("room in the padding");
        assert_eq!((made.signed, made.recompute), (true, Vec::new()));
        // 12 octets of payload leave 14 of padding.
        padded.packet.binary[17] = 32;
        let short = make(&padded).map(|_| ()).expect_err("too short");
        assert!(short.to_string().contains("the packet has 14"), "{short}");
        long.flow_stats.rule_type = "stats".into();
        assert_eq!(make(&long).map(|made| made.signed), Ok(false));
        long.packet.binary[12..14].copy_from_slice(&[0x88, 0xb5]);
        long.packet.binary.truncate(29);
        let other = make(&long).map(|_| ()).expect_err("no IP");
        assert!(other.to_string().contains("an IP header"), "{other}");
    }

    #[test]
    fn a_variable_over_the_mark_is_refused_only_where_the_mark_is_needed() {
        let at = |offset: usize, octets: usize| {
            let mut stream =
                stream(json!([var("v", "inc", (1, 1, 3), 1, None), write("v", offset)]));
            stream.flow_stats.enabled = true;
            make(&stream, stream.packet.binary[..octets].to_vec(), true).map(|made| made.signed)
        };
        assert_eq!(at(18, 81), Ok(true), "it has a signature");
        let why = at(18, 50).expect_err("the identification").to_string();
        assert!(why.contains("try a frame of") && why.contains("no variable can be"), "{why}");
        assert!(at(14, 50).is_err(), "the type of service");
        assert_eq!(at(20, 50), Ok(false), "behind it");
    }

    #[test]
    fn lists_decrement_from_their_end_and_tuples_end_with_their_flows() {
        let list = json!([{ "type": "flow_var", "name": "v", "size": 2, "op": "dec", "step": 1,
            "value_list": [7, 8, 9] }, write("v", 50)]);
        assert_eq!(
            made(list).expect("sound").vary[0].op,
            Op::List { values: vec![9, 8, 7], init: 0 }
        );
        let tuple = |limit: u64| {
            let tuple = json!({ "type": "tuple_flow_var", "name": "t", "ip_min": 1, "ip_max": 2,
                "port_min": 10, "port_max": 20, "limit_flows": limit, "flags": 0 });
            made(json!([tuple, write("t.ip", 26), write("t.port", 34)])).expect("sound").vary
        };
        let up = |min, max| Op::Step { min, max, init: min, step: 1 };
        assert_eq!(tuple(0)[1].op, Op::After { of: 0, then: Box::new(up(10, 20)) });
        assert_eq!(tuple(8)[1].op, Op::After { of: 0, then: Box::new(up(10, 13)) });
        assert_eq!(tuple(3)[1].op, Op::List { values: vec![10, 10, 11], init: 0 });
    }

    #[test]
    fn masks_shift_add_and_cut_as_they_do_in_trex() {
        let mask = |mask: u64, shift: i64| {
            let write = json!({ "type": "write_mask_flow_var", "name": "v", "pkt_offset": 50,
                "pkt_cast_size": 2, "mask": mask, "shift": shift, "add_value": -1, "is_big_endian": true });
            made(json!([var("v", "inc", (1, 1, 9), 1, None), write])).expect("sound").vary
        };
        let high = mask(0x0ff0, 4);
        assert_eq!(high[0].field, FieldRef::Offset { offset: 50, octets: 2, mask: 0x0ff0 });
        assert_eq!((high[0].add, high[0].shift, high[0].little_endian), (-1, 0, false));
        assert_eq!(mask(0x0f0f, 0).len(), 2, "each run of ones is a field");
    }

    #[test]
    fn checksums_in_frames_that_mpls_carries_are_fixed() {
        let text = "eth/mpls/mpls(label=17)/eth/ipv4/udp";
        let packet = squall_wire::Packet::parse(text).expect("a packet");
        let build = packet.build(Some(100), &|_| unreachable!(), 0).expect("room for headers");
        let fix = json!({ "type": "fix_checksum_hw", "l2_len": 36, "l3_len": 20, "l4_type": 11 });
        let made = make(&stream(json!([fix])), build.bytes, false).expect("sound");
        assert_eq!(made.recompute, ["ipv4[0].checksum", "udp[0].checksum"]);
    }

    #[test]
    fn checksums_follow_where_they_are_fixed_and_lengths_within_the_packet() {
        let vm = json!([var("len", "inc", (10, 10, 4000), 1, None), { "type": "trim_pkt_size", "name": "len" },
            { "type": "fix_checksum_ipv4", "pkt_offset": 14 }]);
        let made = made(vm).expect("sound");
        assert_eq!(made.recompute, ["ipv4[0].checksum"]);
        let SizeLaw::List(sizes) = &made.sizes else { panic!("{:?}", made.sizes) };
        assert_eq!((sizes[0], sizes[sizes.len() - 1]), (64, 85));
        let wrong = super::tests::made(json!([{ "type": "fix_checksum_ipv4", "pkt_offset": 15 }]));
        assert!(wrong.expect_err("no header").to_string().contains("octet 15"));
    }
}
