//! A stream's field engine, which runs instructions on stateful variables for each packet.

use serde_json::Value;
use squall_units::be16;

use super::whole;
use crate::Problem;

/// TRex's random numbers: 15 bits per step of a linear congruential generator.
#[derive(Clone, Debug)]
pub(crate) struct Random(pub u32);

impl Random {
    fn bits15(&mut self) -> u64 {
        self.0 = 214_013u32.wrapping_mul(self.0).wrapping_add(2_531_011);
        u64::from(self.0 >> 16 & 0x7fff)
    }

    fn bits32(&mut self) -> u64 {
        let high = self.bits15();
        (high << 16) + self.bits15()
    }

    /// Draws a number from `min` to `max` for a variable of `octets` octets.
    fn number(&mut self, octets: u8, min: u64, max: u64) -> u64 {
        let drawn = match octets {
            1 | 2 => self.bits15(),
            4 => self.bits32(),
            _ => {
                let high = self.bits32();
                (high << 32).wrapping_add(self.bits32())
            }
        };
        match max.wrapping_sub(min).checked_add(1) {
            Some(range) => min.wrapping_add(drawn % range),
            None => drawn,
        }
    }
}

#[derive(Clone, Debug)]
enum Law {
    Step {
        up: bool,
        min: u64,
        max: u64,
        step: u64,
    },
    List {
        up: bool,
        values: Vec<u64>,
        at: u64,
        step: u64,
    },
    Random {
        min: u64,
        max: u64,
        values: Vec<u64>,
    },
    Limited {
        min: u64,
        max: u64,
        first: u32,
        seed: Random,
        count: u64,
        limit: u64,
    },
    /// The variable is driven by a tuple.
    DrivenRun,
}

#[derive(Clone, Debug)]
struct Var {
    name: String,
    octets: u8,
    value: u64,
    law: Law,
    /// Whether the preceding variable names this one as its next, so it advances when that one
    /// wraps.
    follows: bool,
}

/// Addresses and ports that advance together.
#[derive(Clone, Debug)]
struct Tuple {
    ip: (u64, u64),
    port: (u64, u64),
    /// Step of the port for each packet.
    port_step: u64,
    ip_step: u64,
    limit: u64,
    flows: u64,
    unlimited: bool,
    /// The variables of the address and the port.
    vars: (usize, usize),
}

#[derive(Clone, Debug)]
enum Instruction {
    Advance(usize),
    Tuple(Tuple),
    Write(Write),
    Trim(usize),
    FixIpv4(usize),
    FixBelow { l3: usize, l3_len: usize },
}

#[derive(Clone, Debug)]
struct Write {
    var: usize,
    at: usize,
    octets: usize,
    add: i64,
    /// Mask and shift, which apply to 32 bits of the variable.
    masked: Option<(u32, i64)>,
    big: bool,
}

/// Fields that differ between runs: random numbers in a stream without a seed.
#[derive(Debug)]
pub(crate) struct Chance<'a>(&'a Program);

#[derive(Clone, Debug)]
pub(crate) struct Program {
    instructions: Vec<Instruction>,
    vars: Vec<Var>,
    random: Random,
    seeded: bool,
    mean_len: Option<f64>,
}

/// Adds `step` within `min..=max`; wraps in 64-bit arithmetic as TRex does.
fn up(min: u64, max: u64, value: u64, step: u64) -> (u64, bool) {
    let left = max.wrapping_sub(value);
    match step <= left {
        true => (value.wrapping_add(step), false),
        false => (min.wrapping_add(step.wrapping_sub(left).wrapping_sub(1)), true),
    }
}

fn down(min: u64, max: u64, value: u64, step: u64) -> (u64, bool) {
    let left = value.wrapping_sub(min);
    match step <= left {
        true => (value.wrapping_sub(step), false),
        false => (max.wrapping_sub(step.wrapping_sub(left).wrapping_sub(1)), true),
    }
}

fn cut(value: u64, octets: usize) -> u64 {
    value & (u64::MAX >> (64 - 8 * octets.min(8)))
}

impl Program {
    pub fn read(vm: &Value, len: usize, seed: u32) -> Result<Self, Problem> {
        let none = Vec::new();
        let values = vm["instructions"].as_array().unwrap_or(&none);
        let mut program = Self {
            instructions: Vec::new(),
            vars: Vec::new(),
            random: Random(seed.wrapping_mul(514_229)),
            seeded: seed != 0,
            mean_len: None,
        };
        let trimmed: Vec<&Value> =
            values.iter().filter(|v| v["type"] == "trim_pkt_size").map(|v| &v["name"]).collect();
        let mut next: Option<String> = None;
        for value in values {
            let kind = value["type"].as_str().unwrap_or_default();
            let follows = next.take();
            match kind {
                "flow_var" => program.flow_var(value, trimmed.contains(&&value["name"]), len)?,
                "flow_var_rand_limit" => program.rand_limit(value)?,
                "tuple_flow_var" => program.tuple(value)?,
                _ => {
                    let instruction = program.other(kind, value, len)?;
                    program.instructions.push(instruction);
                }
            }
            if kind.starts_with("flow_var") {
                next = value["next_var"].as_str().filter(|n| !n.is_empty()).map(str::to_owned);
                let var = program.vars.last_mut().expect("just read");
                var.follows = follows.as_ref() == Some(&var.name);
            }
        }
        Ok(program)
    }

    fn flow_var(&mut self, value: &Value, length: bool, len: usize) -> Result<(), Problem> {
        let (name, octets) = (name(value)?, size(value)?);
        let up_ = value["op"] == "inc";
        let random = value["op"] == "random";
        let step = whole(value, "step", None)?;
        let list = value["value_list"].as_array();
        let (law, first) = if let Some(list) = list {
            let values: Vec<u64> = list.iter().filter_map(Value::as_u64).collect();
            if values.is_empty() || values.len() != list.len() {
                return Err(Problem::new(format!("{name:?}: expected a list of whole numbers")));
            }
            if length {
                self.mean_len = Some(values.iter().sum::<u64>() as f64 / values.len() as f64);
            }
            match random {
                true => (Law::Random { min: 0, max: 0, values }, 0),
                false => {
                    let last = values.len() as u64 - 1;
                    let at = if up_ { 0 } else { last };
                    (Law::List { up: up_, at, step: step % values.len() as u64, values }, last)
                }
            }
        } else {
            let (mut min, mut max) =
                (whole(value, "min_value", None)?, whole(value, "max_value", None)?);
            let init = whole(value, "init_value", Some(min))?;
            if min > max || !(min..=max).contains(&init) || step == 0 {
                let text = format!("{name:?}: expected min <= init <= max, and a step");
                return Err(Problem::new(text));
            }
            pad(&name, &value["op"], &mut min, &mut max, step)?;
            if length {
                (min, max) = within(&name, min, max, len as u64)?;
                self.mean_len = Some(mean(random, min, max));
            }
            // The variable begins one step before its first value.
            let range = max.wrapping_sub(min).wrapping_add(1);
            let step = if range == 0 { step } else { step % range };
            let first = match (random, up_) {
                (true, _) => init,
                (false, true) => down(min, max, init, step).0,
                (false, false) => up(min, max, init, step).0,
            };
            // TRex's data plane keeps only the lower octets.
            let keep = |number: u64| cut(number, usize::from(octets));
            let (min, max, step) = (keep(min), keep(max), keep(step));
            match random {
                true => (Law::Random { min, max, values: Vec::new() }, keep(first)),
                false => (Law::Step { up: up_, min, max, step }, keep(first)),
            }
        };
        let first = match &law {
            // In memory, a list variable starts as an index.
            Law::List { up, values, step, .. } => {
                let last = values.len() as u64 - 1;
                match up {
                    true => down(0, last, 0, *step).0,
                    false => self::up(0, last, last, *step).0,
                }
            }
            _ => first,
        };
        self.var(Var { name, octets, value: first, law, follows: false })
    }

    fn var(&mut self, var: Var) -> Result<(), Problem> {
        if self.vars.iter().any(|other| other.name == var.name) {
            return Err(Problem::new(format!("there are two variables {:?}", var.name)));
        }
        self.instructions.push(Instruction::Advance(self.vars.len()));
        self.vars.push(var);
        Ok(())
    }

    fn rand_limit(&mut self, value: &Value) -> Result<(), Problem> {
        let (name, octets) = (name(value)?, size(value)?);
        let (min, max) = (whole(value, "min_value", None)?, whole(value, "max_value", None)?);
        let first = whole(value, "seed", None)? as u32;
        let limit = cut(whole(value, "limit", None)?, usize::from(octets));
        let law = Law::Limited { min, max, first, seed: Random(first), count: 0, limit };
        self.var(Var { name, octets, value: 0, law, follows: false })
    }

    fn tuple(&mut self, value: &Value) -> Result<(), Problem> {
        let name = name(value)?;
        let number = |key: &str| whole(value, key, None);
        let ip = (number("ip_min")?, number("ip_max")?);
        let port = (number("port_min")?, number("port_max")?);
        if ip.0 > ip.1 || port.0 > port.1 {
            return Err(Problem::new(format!("{name:?}: expected min <= max")));
        }
        let (ips, ports) = (ip.1 - ip.0 + 1, port.1 - port.0 + 1);
        // A single address wraps with each packet.
        let port_step = u64::from(ips == 1) % ports;
        let ip_step = 1 % ips;
        let (before, wrapped) = down(ip.0, ip.1, ip.0, ip_step);
        let back = (port_step + u64::from(wrapped)) % ports;
        let port_before = down(port.0, port.1, port.0, back).0;
        let first = self.vars.len();
        for (part, octets, value) in [("ip", 4, before), ("port", 2, port_before)] {
            let name = format!("{name}.{part}");
            self.vars.push(Var { name, octets, value, law: Law::DrivenRun, follows: false });
        }
        self.instructions.push(Instruction::Tuple(Tuple {
            ip,
            port,
            port_step,
            ip_step,
            limit: whole(value, "limit_flows", Some(0))?,
            flows: 0,
            unlimited: whole(value, "flags", Some(0))? & 1 == 1,
            vars: (first, first + 1),
        }));
        Ok(())
    }

    fn other(&self, kind: &str, value: &Value, len: usize) -> Result<Instruction, Problem> {
        let place = |key: &str| whole(value, key, None).map(|at| at as usize);
        let var = || {
            let name = name(value)?;
            self.vars
                .iter()
                .position(|var| var.name == name)
                .ok_or_else(|| Problem::new(format!("there is no variable {name:?}")))
        };
        let big = value["is_big_endian"].as_bool().unwrap_or(true);
        let add = value["add_value"].as_i64().unwrap_or(0);
        let instruction = match kind {
            "write_flow_var" => {
                let var = var()?;
                let octets = usize::from(self.vars[var].octets);
                let at = place("pkt_offset")?;
                Instruction::Write(Write { var, at, octets, add, masked: None, big })
            }
            "write_mask_flow_var" => {
                let (octets, at) = (place("pkt_cast_size")?, place("pkt_offset")?);
                let mask = whole(value, "mask", None)? as u32;
                let shift = value["shift"].as_i64().unwrap_or(0);
                let masked = Some((mask, shift));
                Instruction::Write(Write { var: var()?, at, octets, add, masked, big })
            }
            "trim_pkt_size" => Instruction::Trim(var()?),
            "fix_checksum_ipv4" => Instruction::FixIpv4(place("pkt_offset")?),
            "fix_checksum_hw" | "fix_checksum_icmpv6" => {
                Instruction::FixBelow { l3: place("l2_len")?, l3_len: place("l3_len")? }
            }
            other => return Err(Problem::new(format!("instruction {other:?}: not known"))),
        };
        let end = match &instruction {
            Instruction::Write(write) => write.at + write.octets,
            Instruction::FixIpv4(at) => at + 20,
            Instruction::FixBelow { l3, .. } => l3 + 20,
            _ => 0,
        };
        match end <= len {
            true => Ok(instruction),
            false => Err(Problem::new(format!("{kind} ends at octet {end} of {len}"))),
        }
    }

    pub fn has_instructions(&self) -> bool {
        !self.instructions.is_empty()
    }

    /// The mean packet length, used for rates in bits.
    pub fn expected_len(&self, len: usize) -> f64 {
        self.mean_len.unwrap_or(len as f64)
    }

    /// Makes the next packet.
    pub fn run(&mut self, packet: &[u8]) -> Vec<u8> {
        let mut out = packet.to_vec();
        let mut len = None;
        let mut at = 0;
        while at < self.instructions.len() {
            match &mut self.instructions[at] {
                Instruction::Advance(var) => {
                    let var = *var;
                    if !self.advance(var) {
                        at += self.followers(at);
                    }
                }
                Instruction::Tuple(tuple) => tuple.advance(&mut self.vars),
                Instruction::Write(write) => write.put(&self.vars[write.var], &mut out),
                Instruction::Trim(var) => len = Some(self.vars[*var].value as usize),
                Instruction::FixIpv4(at) => fix_ipv4(&mut out, *at),
                // Checksums are computed when the packet is complete.
                Instruction::FixBelow { .. } => {}
            }
            at += 1;
        }
        if let Some(len) = len.filter(|len| *len > 0) {
            out.truncate(len);
        }
        self.offload(&mut out);
        out
    }

    /// Applies the checksum offload of a NIC.
    pub fn offload(&self, packet: &mut [u8]) {
        for instruction in &self.instructions {
            if let Instruction::FixBelow { l3, l3_len } = instruction {
                fix_below(packet, *l3, *l3_len);
            }
        }
    }

    /// Number of variables after `at` that each wait for the preceding one.
    fn followers(&self, at: usize) -> usize {
        self.instructions[at + 1..]
            .iter()
            .take_while(|i| matches!(i, Instruction::Advance(var) if self.vars[*var].follows))
            .count()
    }

    /// Advances a variable; returns whether its followers advance too.
    fn advance(&mut self, var: usize) -> bool {
        let (seeded, random) = (self.seeded, &mut self.random);
        let Var { octets, value, law, .. } = &mut self.vars[var];
        match law {
            Law::Step { up: true, min, max, step } => {
                let wraps = !enough(*octets, *max, *value, *step);
                *value = cut(up(*min, *max, *value, *step).0, usize::from(*octets));
                wraps
            }
            Law::Step { up: false, min, max, step } => {
                let wraps = !enough(*octets, *value, *min, *step);
                *value = cut(down(*min, *max, *value, *step).0, usize::from(*octets));
                wraps
            }
            Law::List { up, values, at, step } => {
                let count = values.len() as u64;
                let wraps = if *up { *at < *step } else { *at + *step >= count };
                *value = values[*at as usize];
                *at = if *up { (*at + *step) % count } else { (*at + count - *step) % count };
                wraps
            }
            Law::Random { min, max, values } => {
                let mut chance = Random(1);
                let random = if seeded { random } else { &mut chance };
                *value = match values.as_slice() {
                    [] => random.number(*octets, *min, *max),
                    values => values[random.bits15() as usize % values.len()],
                };
                true
            }
            Law::Limited { min, max, first, seed, count, limit } => {
                let wraps = *count == *limit;
                if wraps {
                    (*seed, *count) = (Random(*first), 0);
                }
                *value = cut(seed.number(*octets, *min, *max), usize::from(*octets));
                *count += 1;
                wraps
            }
            Law::DrivenRun => true,
        }
    }

    /// The fields of the stream's packets that differ between runs, if any.
    pub fn chance(&self) -> Option<Chance<'_>> {
        let random = |var: &Var| matches!(var.law, Law::Random { .. });
        (!self.seeded && self.vars.iter().any(random)).then_some(Chance(self))
    }
}

impl Chance<'_> {
    fn is(&self, var: usize) -> bool {
        matches!(self.0.vars[var].law, Law::Random { .. })
    }

    /// Replaces the random numbers in `expected` with those in `found`, if these are within their
    /// ranges.
    ///
    /// # Errors
    /// A number is out of range.
    pub fn adopt(&self, packet: &[u8], expected: &[u8], found: &[u8]) -> Result<Vec<u8>, String> {
        let mut adopted = expected.to_vec();
        let mut seen = vec![None; self.0.vars.len()];
        for instruction in &self.0.instructions {
            if let Instruction::Trim(var) = instruction
                && self.is(*var)
            {
                self.check(*var, found.len() as u64, &mut seen)?;
                adopted = [expected, packet.get(expected.len()..).unwrap_or(&[])].concat();
                adopted.resize(found.len(), 0);
            }
        }
        for instruction in &self.0.instructions {
            match instruction {
                Instruction::Write(write) if self.is(write.var) => {
                    self.take(write, &mut adopted, found, &mut seen)?;
                }
                Instruction::FixIpv4(at) => fix_ipv4(&mut adopted, *at),
                _ => {}
            }
        }
        self.0.offload(&mut adopted);
        Ok(adopted)
    }

    fn take(
        &self,
        write: &Write,
        adopted: &mut [u8],
        found: &[u8],
        seen: &mut [Option<u64>],
    ) -> Result<(), String> {
        let place = write.at..write.at + write.octets;
        let (Some(to), Some(from)) = (adopted.get_mut(place.clone()), found.get(place)) else {
            return Ok(());
        };
        match write.masked {
            None => {
                let number = number(from, write.big).wrapping_sub(write.add as u64);
                self.check(write.var, cut(number, write.octets), seen)?;
                to.copy_from_slice(from);
            }
            Some((mask, _)) => {
                let mask = cut(u64::from(mask), write.octets);
                let both = number(to, write.big) & !mask | number(from, write.big) & mask;
                store(to, both, write.big);
            }
        }
        Ok(())
    }

    /// Checks that a variable has a single value in a packet, and that it is within its range.
    fn check(&self, var: usize, found: u64, seen: &mut [Option<u64>]) -> Result<(), String> {
        let Var { name, law, .. } = &self.0.vars[var];
        if *seen[var].get_or_insert(found) != found {
            return Err(format!("{name:?} is {found} in one place and not in another"));
        }
        let Law::Random { min, max, values } = law else { return Ok(()) };
        let within = match values.as_slice() {
            [] => (*min..=*max).contains(&found),
            values => values.contains(&found),
        };
        match within {
            true => Ok(()),
            false => Err(format!("{name:?} is {found}, outside of its range")),
        }
    }
}

impl Tuple {
    fn advance(&mut self, vars: &mut [Var]) {
        let (ip, port) = (vars[self.vars.0].value, vars[self.vars.1].value);
        let (ip, port) = match self.unlimited {
            true => self.without_limit(ip, port),
            false => self.within_limit(ip, port),
        };
        (vars[self.vars.0].value, vars[self.vars.1].value) = (ip, port);
    }

    fn without_limit(&self, ip: u64, port: u64) -> (u64, u64) {
        match ip + 1 > self.ip.1 {
            true => (self.ip.0, if port == 65_535 { 1025 } else { port + 1 }),
            false => (ip + 1, port),
        }
    }

    fn within_limit(&mut self, ip: u64, port: u64) -> (u64, u64) {
        let (ip, wrapped) = up(self.ip.0, self.ip.1, ip, self.ip_step);
        let mut port = up(self.port.0, self.port.1, port, self.port_step).0;
        if wrapped {
            port = up(self.port.0, self.port.1, port, 1).0;
        }
        if self.limit > 0 {
            self.flows += 1;
            if self.flows > self.limit {
                self.flows = 1;
                return (self.ip.0, self.port.0);
            }
        }
        (ip, port)
    }
}

impl Write {
    fn put(&self, var: &Var, packet: &mut [u8]) {
        let place = &mut packet[self.at..self.at + self.octets];
        let written = match self.masked {
            None => cut(var.value.wrapping_add(self.add as u64), self.octets),
            Some((mask, shift)) => {
                // TRex takes the upper half of 64 bits in network order.
                let half = if var.octets == 8 && self.big { var.value >> 32 } else { var.value };
                let added = (half as u32).wrapping_add(self.add as u32);
                let shifted = match shift {
                    0.. => added.checked_shl(shift as u32).unwrap_or(0),
                    _ => added.checked_shr(-shift as u32).unwrap_or(0),
                };
                number(place, self.big) & !u64::from(mask) | u64::from(shifted & mask)
            }
        };
        store(place, written, self.big);
    }
}

fn number(octets: &[u8], big: bool) -> u64 {
    let join = |number: u64, octet: &u8| number << 8 | u64::from(*octet);
    if big { octets.iter().fold(0, join) } else { octets.iter().rev().fold(0, join) }
}

fn store(octets: &mut [u8], number: u64, big: bool) {
    let len = octets.len();
    for (i, octet) in octets.iter_mut().enumerate() {
        let place = if big { len - 1 - i } else { i };
        *octet = (number >> (8 * place)) as u8;
    }
}

/// Whether a variable can step from `low` to `high` without wrapping, compared like in the data
/// plane for its size.
fn enough(octets: u8, high: u64, low: u64, step: u64) -> bool {
    match octets {
        1 | 2 => high as i64 - low as i64 >= step as i64,
        4 => (high as u32).wrapping_sub(low as u32) >= step as u32,
        _ => high.wrapping_sub(low) >= step,
    }
}

fn name(value: &Value) -> Result<String, Problem> {
    let name = value["name"].as_str().map(str::to_owned);
    name.ok_or_else(|| Problem::new("an instruction needs the name of a variable"))
}

fn size(value: &Value) -> Result<u8, Problem> {
    match whole(value, "size", None)? {
        size @ (1 | 2 | 4 | 8) => Ok(size as u8),
        size => Err(Problem::new(format!("a variable of {size} octets: expected 1, 2, 4 or 8"))),
    }
}

/// Extends a range to a multiple of the step.
fn pad(name: &str, op: &Value, min: &mut u64, max: &mut u64, step: u64) -> Result<(), Problem> {
    let over = (*max - *min).wrapping_add(1) % step;
    if over == 0 || (op != "inc" && op != "dec") {
        return Ok(());
    }
    let more = step - over;
    let padded = if op == "inc" { max.checked_add(more) } else { min.checked_sub(more) };
    let padded =
        padded.ok_or_else(|| Problem::new(format!("{name:?}: its range cannot be padded")))?;
    *(if op == "inc" { max } else { min }) = padded;
    Ok(())
}

/// Limits lengths to the packet's length and the shortest frame.
fn within(name: &str, min: u64, max: u64, len: u64) -> Result<(u64, u64), Problem> {
    let (min, max) = (min.min(len), max.min(len));
    match min < max {
        true => Ok((min.max(60), max)),
        false => Err(Problem::new(format!("{name:?}: lengths from {min} to {max}"))),
    }
}

/// TRex estimates the mean of random lengths from a sample.
fn mean(random: bool, min: u64, max: u64) -> f64 {
    if !random {
        return (min + max) as f64 / 2.0;
    }
    const SAMPLES: u32 = 10_000;
    let mut sample = Random(1);
    let sum: u64 = (0..SAMPLES).map(|_| sample.bits15() % (max - min + 1)).sum();
    min as f64 + sum as f64 / f64::from(SAMPLES)
}

/// The ones' complement sum of 16-bit words, without the final complement.
fn sum(octets: &[u8]) -> u64 {
    let words = octets
        .chunks(2)
        .map(|pair| u64::from(pair[0]) << 8 | pair.get(1).copied().map_or(0, u64::from));
    words.sum()
}

fn checksum(mut sum: u64) -> u16 {
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

pub(super) fn fix_ipv4(packet: &mut [u8], at: usize) {
    let Some(len) = packet.get(at).map(|first| usize::from(first & 15) * 4) else { return };
    let Some(header) = packet.get_mut(at..at + len).filter(|header| header.len() >= 20) else {
        return;
    };
    header[10..12].fill(0);
    let sum = checksum(sum(header));
    header[10..12].copy_from_slice(&sum.to_be_bytes());
}

/// Fills in the IPv4 checksum and that of the TCP, UDP or ICMPv6 header after it.
fn fix_below(packet: &mut [u8], l3: usize, l3_len: usize) {
    if packet.len() < l3 + 20 {
        return;
    }
    let word = |packet: &[u8], at: usize| usize::from(be16(packet, at));
    let (l4, end, pseudo, protocol) = match packet[l3] >> 4 {
        4 => {
            fix_ipv4(packet, l3);
            let l4 = l3 + usize::from(packet[l3] & 15) * 4;
            (l4, l3 + word(packet, l3 + 2), sum(&packet[l3 + 12..l3 + 20]), packet[l3 + 9])
        }
        _ if packet.len() < l3 + 40 => return,
        _ => {
            let protocol =
                if l3_len > 40 { last_header(packet, l3, l3_len) } else { packet[l3 + 6] };
            let end = l3 + 40 + word(packet, l3 + 4);
            (l3 + l3_len, end, sum(&packet[l3 + 8..l3 + 40]), protocol)
        }
    };
    let place = match protocol {
        6 => l4 + 16,
        17 => l4 + 6,
        58 => l4 + 2,
        _ => return,
    };
    let end = end.min(packet.len());
    if place + 2 > end {
        return;
    }
    packet[place..place + 2].fill(0);
    let whole = pseudo + u64::from(protocol) + (end - l4) as u64 + sum(&packet[l4..end]);
    let mut sum = checksum(whole);
    if protocol == 17 && sum == 0 {
        sum = 0xffff;
    }
    packet[place..place + 2].copy_from_slice(&sum.to_be_bytes());
}

/// The upper-layer protocol after IPv6 extension headers.
fn last_header(packet: &[u8], l3: usize, l3_len: usize) -> u8 {
    let (mut protocol, mut at) = (packet[l3 + 6], l3 + 40);
    while at < l3 + l3_len && at + 2 <= packet.len() {
        protocol = packet[at];
        at += 8 + usize::from(packet[at + 1]) * 8;
    }
    protocol
}
