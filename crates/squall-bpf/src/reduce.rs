//! Shortens programs without changing which frames they match: a jump to a test whose outcome is
//! already known is redirected to where that test would jump.
//!
//! libpcap generates each primitive of an expression separately: `port 80 or port 443` reads the
//! EtherType and the protocol once per port. Its own optimizer removes that, but changes the frames
//! that some programs match, so Squall uses this one instead, which has a single rule. Instructions
//! are never changed, or moved within a block, only removed together with their block.
//!
//! This is sound because a frame does not change while a program reads it: a value that depends
//! only on the frame ("closed") compares the same way each time, and a load that succeeded once
//! succeeds again.

use std::collections::{BTreeSet, HashMap};

use crate::classic::{ALU, Instruction, JMP, LD, LDX, RET, ST, STX, WORDS, alu, holds};

/// Maximum number of states per block; beyond it, the program is left unchanged. Chains of hundreds
/// of ports, addresses and protocols need at most 20.
const MAX_STATES: usize = 64;

/// The program that [`crate::classic::Filter::reduced`] describes; `None` if the program has loops,
/// or too many states.
pub fn reduce(program: &[Instruction]) -> Option<Vec<Instruction>> {
    let blocks = Blocks::new(program)?;
    let mut walk = Walk {
        program,
        blocks: &blocks,
        states: HashMap::new(),
        settled: HashMap::new(),
        nodes: Vec::new(),
    };
    let root = walk.explore()?;
    Some(write(program, &blocks, &walk.nodes, root))
}

// --- blocks

/// Consecutive instructions that run without a jump between them, and the next blocks.
#[derive(Debug)]
struct Block {
    /// The block's instructions are `start..end`, without the jump or return at its end.
    start: usize,
    end: usize,
    next: Next<usize>,
    /// The branch's comparison; `None` if it depends on registers of earlier blocks.
    test: Option<Test>,
    /// Values whose computation rejects the frame if it fails, if all of them are closed; otherwise
    /// `None`.
    fallible: Option<Vec<Id>>,
    /// Registers that the block writes, and registers that it or a later block reads before writing
    /// them.
    writes: u32,
    live: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Next<T> {
    Goto(T),
    /// Index of the jump instruction; its target if the condition holds, and its target if not.
    Branch(usize, T, T),
    /// Code and operand of the instruction.
    Return(u16, u32),
}

type Id = u32;

/// Content of a register as a function of the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Value {
    /// Content of this register at the block's start; not closed.
    Before(u8),
    Const(u32),
    WireLen,
    /// Code of the instruction without its class; offset; the value added to the offset.
    Load(u16, u32, Option<Id>),
    /// The header length `4 * ([k] & 15)`.
    HeaderLen(u32),
    Op(u16, Id, Id),
}

/// A comparison: operation, accumulator, operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Test {
    op: u16,
    a: Id,
    by: Id,
}

struct Blocks {
    blocks: Vec<Block>,
    values: Vec<Value>,
    /// Number of the last block with this test; then of the last with any test of this value, and
    /// of the last with this load. After that block, knowledge about them is not needed.
    last_test: HashMap<Test, usize>,
    last_tested: HashMap<Id, usize>,
    last_load: HashMap<Id, usize>,
}

const A: usize = 0;
const X: usize = 1;
const MEMORY: usize = 2;
const REGISTERS: usize = MEMORY + WORDS;

impl Blocks {
    fn new(program: &[Instruction]) -> Option<Self> {
        let mut starts: BTreeSet<usize> = BTreeSet::from([0]);
        for (at, insn) in program.iter().enumerate() {
            match insn.code & 7 {
                JMP if insn.code & 0xf0 == 0 => {
                    // A jump back is a loop.
                    if insn.k > i32::MAX as u32 {
                        return None;
                    }
                    starts.extend([at + 1, at + 1 + insn.k as usize]);
                }
                JMP => starts.extend(
                    [1, 1 + usize::from(insn.jt), 1 + usize::from(insn.jf)].map(|by| at + by),
                ),
                RET => {
                    starts.insert(at + 1);
                }
                _ => {}
            }
        }
        starts.retain(|start| *start < program.len());
        let starts: Vec<usize> = starts.into_iter().collect();
        let number = |at: usize| starts.binary_search(&at).expect("targets are starts of blocks");
        let mut interned = Interned::default();
        let mut blocks = Vec::with_capacity(starts.len());
        for (i, &start) in starts.iter().enumerate() {
            let after = starts.get(i + 1).copied().unwrap_or(program.len());
            let last = program[after - 1];
            let (end, next) = match last.code & 7 {
                JMP if last.code & 0xf0 == 0 => {
                    (after - 1, Next::Goto(number(after + last.k as usize)))
                }
                JMP => {
                    let to = |by: u8| number(after + usize::from(by));
                    (after - 1, Next::Branch(after - 1, to(last.jt), to(last.jf)))
                }
                RET => (after - 1, Next::Return(last.code, last.k)),
                _ => (after, Next::Goto(number(after))),
            };
            blocks.push(interned.block(program, start, end, next));
        }
        let mut all = Self {
            blocks,
            values: interned.values,
            last_test: HashMap::new(),
            last_tested: HashMap::new(),
            last_load: HashMap::new(),
        };
        all.compute_liveness();
        Some(all)
    }

    /// Works from the last block to the first: jumps only go forward.
    fn compute_liveness(&mut self) {
        for number in (0..self.blocks.len()).rev() {
            let after = match self.blocks[number].next {
                Next::Goto(to) => self.blocks[to].live,
                Next::Branch(_, yes, no) => self.blocks[yes].live | self.blocks[no].live,
                Next::Return(..) => 0,
            };
            let block = &mut self.blocks[number];
            // So far, `live` has only the block's own reads.
            block.live |= after & !block.writes;
            if let Some(test) = block.test {
                self.last_test.entry(test).or_insert(number);
                self.last_tested.entry(test.a).or_insert(number);
            }
            for &load in block.fallible.iter().flatten() {
                self.last_load.entry(load).or_insert(number);
            }
        }
    }

    fn constant(&self, id: Id) -> Option<u32> {
        match self.values[id as usize] {
            Value::Const(k) => Some(k),
            _ => None,
        }
    }
}

/// Numbers values; equal values get equal numbers.
#[derive(Default)]
struct Interned {
    numbers: HashMap<Value, Id>,
    values: Vec<Value>,
    closed: Vec<bool>,
}

impl Interned {
    fn id(&mut self, value: Value) -> Id {
        let closed = match value {
            Value::Before(_) => false,
            Value::Load(_, _, Some(x)) => self.closed[x as usize],
            Value::Op(_, a, b) => self.closed[a as usize] && self.closed[b as usize],
            _ => true,
        };
        *self.numbers.entry(value).or_insert_with(|| {
            self.values.push(value);
            self.closed.push(closed);
            self.values.len() as Id - 1
        })
    }

    fn block(
        &mut self,
        program: &[Instruction],
        start: usize,
        end: usize,
        next: Next<usize>,
    ) -> Block {
        let mut registers: [Id; REGISTERS] =
            std::array::from_fn(|register| self.id(Value::Before(register as u8)));
        let (mut reads, mut writes) = (0u32, 0u32);
        let mut fallible = Some(Vec::new());
        let mut read = |register: usize, writes: u32| reads |= (1 << register) & !writes;
        for &Instruction { code, k, .. } in &program[start..end] {
            let mut may_fail = false;
            let (register, value) = match code & 7 {
                class @ (LD | LDX) => {
                    let register = if class == LD { A } else { X };
                    let value = match code & 0xe0 {
                        0x00 => Value::Const(k),
                        0x60 => {
                            read(MEMORY + k as usize, writes);
                            registers[register] = registers[MEMORY + k as usize];
                            writes |= 1 << register;
                            continue;
                        }
                        0x80 => Value::WireLen,
                        0x20 => {
                            may_fail = true;
                            Value::Load(code & 0xf8, k, None)
                        }
                        0x40 => {
                            may_fail = true;
                            read(X, writes);
                            Value::Load(code & 0xf8, k, Some(registers[X]))
                        }
                        _ => {
                            may_fail = true;
                            Value::HeaderLen(k)
                        }
                    };
                    (register, value)
                }
                class @ (ST | STX) => {
                    let from = if class == ST { A } else { X };
                    read(from, writes);
                    registers[MEMORY + k as usize] = registers[from];
                    writes |= 1 << (MEMORY + k as usize);
                    continue;
                }
                ALU => {
                    read(A, writes);
                    let by = if code & 8 == 0 {
                        self.id(Value::Const(k))
                    } else {
                        read(X, writes);
                        registers[X]
                    };
                    let op = code & 0xf0;
                    let constants =
                        match (self.values[registers[A] as usize], self.values[by as usize]) {
                            (Value::Const(a), Value::Const(by)) => alu(op, a, by),
                            _ => None,
                        };
                    // A division by X rejects the frame if X is 0.
                    let divides = matches!(op, 0x30 | 0x90);
                    may_fail = divides && !matches!(self.values[by as usize], Value::Const(1..));
                    (A, constants.map_or(Value::Op(op, registers[A], by), Value::Const))
                }
                // TAX and TXA.
                _ => {
                    let (from, to) = if code & 0x80 == 0 { (A, X) } else { (X, A) };
                    read(from, writes);
                    registers[to] = registers[from];
                    writes |= 1 << to;
                    continue;
                }
            };
            registers[register] = self.id(value);
            writes |= 1 << register;
            if may_fail {
                match self.closed[registers[register] as usize] {
                    true => fallible.iter_mut().for_each(|all| all.push(registers[register])),
                    false => fallible = None,
                }
            }
        }
        let mut test = None;
        match next {
            Next::Branch(at, ..) => {
                read(A, writes);
                let Instruction { code, k, .. } = program[at];
                let by = if code & 8 == 0 {
                    self.id(Value::Const(k))
                } else {
                    read(X, writes);
                    registers[X]
                };
                if self.closed[registers[A] as usize] && self.closed[by as usize] {
                    test = Some(Test { op: code & 0xf0, a: registers[A], by });
                }
            }
            Next::Return(code, _) if code & 0x18 != 0 => read(A, writes),
            _ => {}
        }
        Block { start, end, next, test, fallible, writes, live: reads }
    }
}

// --- states

/// Knowledge about the frame on the path to a block, sorted by number, so that equal knowledge
/// compares as equal.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Known {
    tests: BTreeSet<(Test, bool)>,
    /// Loads that succeeded.
    loads: BTreeSet<Id>,
}

impl Known {
    fn outcome(&self, test: Test, blocks: &Blocks) -> Option<bool> {
        let by = blocks.constant(test.by);
        if let (Some(a), Some(by)) = (blocks.constant(test.a), by) {
            return Some(holds(test.op, a, by));
        }
        for outcome in [true, false] {
            if self.tests.contains(&(test, outcome)) {
                return Some(outcome);
            }
        }
        let by = by?;
        for (known, outcome) in self.of(test.a) {
            let Some(known_by) = blocks.constant(known.by) else { continue };
            if known.op == EQUAL && outcome {
                return Some(holds(test.op, known_by, by));
            }
            // If the value were `by`, the known test would have had a different outcome.
            if test.op == EQUAL && holds(known.op, by, known_by) != outcome {
                return Some(false);
            }
        }
        None
    }

    fn of(&self, a: Id) -> impl Iterator<Item = (Test, bool)> {
        // Filters all tests: they are ordered by operation first, so the tests of a value are not
        // adjacent.
        self.tests.iter().copied().filter(move |(test, _)| test.a == a)
    }

    fn learn(&mut self, test: Test, outcome: bool, blocks: &Blocks) {
        if test.op == EQUAL && outcome && blocks.constant(test.by).is_some() {
            // Equality implies everything about the value.
            self.tests.retain(|(known, _)| known.a != test.a);
        }
        self.tests.insert((test, outcome));
    }

    /// Drops knowledge that no block from `number` on uses.
    fn forget(&mut self, number: usize, blocks: &Blocks) {
        let matters = |last: Option<&usize>| last.is_some_and(|last| *last >= number);
        self.tests.retain(|(test, outcome)| {
            matters(blocks.last_test.get(test))
                || test.op == EQUAL && *outcome && matters(blocks.last_tested.get(&test.a))
        });
        self.loads.retain(|load| matters(blocks.last_load.get(load)));
    }
}

const EQUAL: u16 = 0x10;

/// A block of the new program: an old block, and the next nodes. Nodes with equal instructions and
/// equal next nodes become one node, at the position of the last of their blocks, which keeps all
/// jumps forward.
#[derive(Clone, Copy, Debug)]
struct Node {
    block: usize,
    next: Next<usize>,
}

struct Walk<'a> {
    program: &'a [Instruction],
    blocks: &'a Blocks,
    /// The node of each state.
    states: HashMap<(usize, Known), usize>,
    /// For each state whose block is removed, the state where the path continues. It is cached
    /// because chains of such states can be as long as the program.
    settled: HashMap<(usize, Known), (usize, Known)>,
    nodes: Vec<Node>,
}

/// A state that has no node yet.
struct PendingState {
    state: (usize, Known),
    next: Next<(usize, Known)>,
}

impl Walk<'_> {
    /// Makes the nodes of all reachable states, later states first. Returns the index of the first
    /// block's node.
    fn explore(&mut self) -> Option<usize> {
        let max_states = MAX_STATES * self.blocks.blocks.len();
        let mut numbers = HashMap::new();
        let root = self.settle(0, Known::default());
        // An explicit stack: programs can be thousands of blocks deep.
        let mut open = vec![self.open(root.clone())];
        while let Some(PendingState { next, .. }) = open.last() {
            let missing = match next {
                Next::Goto(to) => [Some(to), None],
                Next::Branch(_, yes, no) => [Some(yes), Some(no)],
                Next::Return(..) => [None, None],
            };
            let missing = missing.into_iter().flatten().find(|to| !self.states.contains_key(to));
            if let Some(missing) = missing.cloned() {
                open.push(self.open(missing));
                if self.states.len() + open.len() > max_states {
                    return None;
                }
                continue;
            }
            let PendingState { state, next } = open.pop().expect("there is one");
            let next = match next {
                Next::Goto(to) => Next::Goto(self.states[&to]),
                Next::Branch(at, yes, no) => {
                    let (yes, no) = (self.states[&yes], self.states[&no]);
                    if yes == no { Next::Goto(yes) } else { Next::Branch(at, yes, no) }
                }
                Next::Return(code, k) => Next::Return(code, k),
            };
            let block = &self.blocks.blocks[state.0];
            // Splits a branch into the index of its instruction and its targets.
            let (at, next_key) = match next {
                Next::Branch(at, yes, no) => (Some(at), Next::Branch(0, yes, no)),
                other => (None, other),
            };
            let test = at.map(|at| (self.program[at].code, self.program[at].k));
            let nodes = &mut self.nodes;
            let key = (&self.program[block.start..block.end], test, next_key);
            let number = *numbers.entry(key).or_insert_with(|| {
                nodes.push(Node { block: state.0, next });
                nodes.len() - 1
            });
            if nodes[number].block < state.0 {
                nodes[number] = Node { block: state.0, next };
            }
            self.states.insert(state, number);
        }
        self.states.get(&root).copied()
    }

    fn open(&mut self, state: (usize, Known)) -> PendingState {
        let (number, mut known) = state.clone();
        let block = &self.blocks.blocks[number];
        known.loads.extend(block.fallible.iter().flatten());
        let next = match (block.next, block.test) {
            (Next::Return(code, k), _) => Next::Return(code, k),
            (Next::Goto(to), _) => Next::Goto(self.settle(to, known)),
            (Next::Branch(at, yes, no), None) => {
                Next::Branch(at, self.settle(yes, known.clone()), self.settle(no, known))
            }
            (Next::Branch(at, yes, no), Some(test)) => match known.outcome(test, self.blocks) {
                Some(true) => Next::Goto(self.settle(yes, known)),
                Some(false) => Next::Goto(self.settle(no, known)),
                None => {
                    let mut other = known.clone();
                    known.learn(test, true, self.blocks);
                    other.learn(test, false, self.blocks);
                    Next::Branch(at, self.settle(yes, known), self.settle(no, other))
                }
            },
        };
        PendingState { state, next }
    }

    /// The first state from here on whose block cannot be left out.
    fn settle(&mut self, mut number: usize, mut known: Known) -> (usize, Known) {
        let mut passed = Vec::new();
        let end = loop {
            known.forget(number, self.blocks);
            let state = (number, known);
            if let Some(end) = self.settled.get(&state) {
                break end.clone();
            }
            let Some(to) = self.after(&state) else { break state };
            number = to;
            known = state.1.clone();
            passed.push(state);
        };
        self.settled.extend(passed.into_iter().map(|state| (state, end.clone())));
        end
    }

    /// The next state after one whose block can be left out.
    fn after(&self, (number, known): &(usize, Known)) -> Option<usize> {
        let block = &self.blocks.blocks[*number];
        let to = match (block.next, block.test) {
            (Next::Goto(to), _) => to,
            (Next::Branch(_, yes, no), Some(test)) => {
                if known.outcome(test, self.blocks)? {
                    yes
                } else {
                    no
                }
            }
            _ => return None,
        };
        let succeeds = block.fallible.as_ref()?.iter().all(|load| known.loads.contains(load));
        (succeeds && block.writes & self.blocks.blocks[to].live == 0).then_some(to)
    }
}

// --- instructions

/// Writes the nodes in the order of their blocks, which keeps all jumps forward.
fn write(
    program: &[Instruction],
    blocks: &Blocks,
    nodes: &[Node],
    root: usize,
) -> Vec<Instruction> {
    let mut order: Vec<usize> = reachable(nodes, root);
    order.sort_by_key(|&node| (nodes[node].block, node));
    let mut place = vec![0; nodes.len()];
    order.iter().enumerate().for_each(|(i, &node)| place[node] = i);
    // Branches reach 255 instructions; farther targets need an additional jump.
    let mut far = vec![[false; 2]; order.len()];
    loop {
        let mut starts = Vec::with_capacity(order.len() + 1);
        let mut at = 0;
        for (i, &node) in order.iter().enumerate() {
            starts.push(at);
            let body =
                blocks.blocks[nodes[node].block].end - blocks.blocks[nodes[node].block].start;
            at += body
                + match nodes[node].next {
                    Next::Goto(to) => usize::from(place[to] != i + 1),
                    Next::Branch(..) => 1 + far[i].iter().filter(|far| **far).count(),
                    Next::Return(..) => 1,
                };
        }
        let mut out: Vec<Instruction> = Vec::with_capacity(at);
        let mut fits = true;
        for (i, &node) in order.iter().enumerate() {
            let block = &blocks.blocks[nodes[node].block];
            out.extend_from_slice(&program[block.start..block.end]);
            let jump = |out: &mut Vec<Instruction>, to: usize| {
                let block = &blocks.blocks[nodes[to].block];
                out.push(match nodes[to].next {
                    // A return is no longer than a jump to it, so it is repeated.
                    Next::Return(code, k) if block.start == block.end => {
                        Instruction { code, jt: 0, jf: 0, k }
                    }
                    _ => {
                        let k = (starts[place[to]] - out.len() - 1) as u32;
                        Instruction { code: JMP, jt: 0, jf: 0, k }
                    }
                });
            };
            match nodes[node].next {
                Next::Goto(to) if place[to] == i + 1 => {}
                Next::Goto(to) => jump(&mut out, to),
                Next::Return(code, k) => out.push(Instruction { code, jt: 0, jf: 0, k }),
                Next::Branch(at, yes, no) => {
                    let after = out.len() + 1;
                    let mut jumps = Vec::new();
                    let mut by = [yes, no].into_iter().enumerate().map(|(side, to)| {
                        if far[i][side] {
                            jumps.push(to);
                            return jumps.len() as u8 - 1;
                        }
                        u8::try_from(starts[place[to]] - after).unwrap_or_else(|_| {
                            (far[i][side], fits) = (true, false);
                            0
                        })
                    });
                    let (jt, jf) = (by.next().expect("two"), by.next().expect("two"));
                    drop(by);
                    out.push(Instruction { jt, jf, ..program[at] });
                    jumps.into_iter().for_each(|to| jump(&mut out, to));
                }
            }
        }
        if fits {
            return out;
        }
    }
}

fn reachable(nodes: &[Node], root: usize) -> Vec<usize> {
    let mut seen = vec![false; nodes.len()];
    let (mut found, mut left) = (Vec::new(), vec![root]);
    while let Some(node) = left.pop() {
        if std::mem::replace(&mut seen[node], true) {
            continue;
        }
        found.push(node);
        match nodes[node].next {
            Next::Goto(to) => left.push(to),
            Next::Branch(_, yes, no) => left.extend([yes, no]),
            Next::Return(..) => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classic::Filter;

    fn numbers(mut seed: u64) -> impl FnMut(u32) -> u32 {
        move |below| {
            seed = seed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            (seed >> 33) as u32 % below
        }
    }

    /// Blocks like those of libpcap, which test the same few fields and values repeatedly; some use
    /// registers of earlier blocks.
    fn random_program(random: &mut impl FnMut(u32) -> u32) -> Vec<Instruction> {
        let insn = |code, k| Instruction { code, jt: 0, jf: 0, k };
        let mut program = Vec::new();
        for _ in 0..2 + random(14) {
            match random(10) {
                0..=3 => program.push(insn([0x20, 0x28, 0x30][random(3) as usize], random(6))),
                4 => program.extend([insn(0xb1, random(2)), insn(0x50, random(4))]),
                5 => program.extend([insn(0x00, random(3)), insn(0x02, random(2))]),
                6 => program.extend([insn(0x60, random(2)), insn(0x07, 0), insn(0x30, random(4))]),
                // A quotient of two words of scratch memory, as in `1/2 = 1/3`.
                7 => program.extend([insn(0x61, random(2)), insn(0x00, random(3)), insn(0x3c, 0)]),
                8 => program.push(insn(0x80, 0)),
                _ => {}
            }
            if random(3) == 0 {
                program.push(insn([0x04, 0x54, 0x74][random(3) as usize], 1 + random(3)));
            }
            let code = [0x15, 0x15, 0x15, 0x25, 0x35, 0x45, 0x1d, 0x05][random(8) as usize];
            let (jt, jf) = (random(12) as u8, random(12) as u8);
            program.push(match code {
                0x05 => insn(0x05, random(6)),
                _ => Instruction { code, jt, jf, k: random(3) },
            });
        }
        let body = program.len();
        program.extend([insn(0x06, 7), insn(0x16, 0), insn(0x06, 0)]);
        // Jumps past the end are redirected to one of the returns.
        for (at, insn) in program.iter_mut().enumerate().take(body) {
            let most = (body + 1 - at) as u32;
            if insn.code == 0x05 {
                insn.k = insn.k.min(most);
            } else if insn.code & 7 == JMP {
                insn.jt = insn.jt.min(most as u8);
                insn.jf = insn.jf.min(most as u8);
            }
        }
        program
    }

    #[test]
    fn a_reduced_program_gives_the_same_for_every_frame() {
        let mut random = numbers(1);
        let (mut shorter, mut taken, mut refused) = (0, 0, 0);
        for _ in 0..5_000 {
            let plain = Filter::new(random_program(&mut random)).unwrap();
            let reduced = plain.clone().reduced();
            shorter += usize::from(reduced.instructions().len() < plain.instructions().len());
            for _ in 0..20 {
                let octets: Vec<u8> = (0..random(12)).map(|_| random(3) as u8).collect();
                let wire_len = octets.len() as u32 + random(3);
                let result = plain.run(&octets, wire_len);
                assert_eq!(
                    result,
                    reduced.run(&octets, wire_len),
                    "{:x?}\n{:x?}\n{octets:x?} {wire_len}",
                    plain.instructions(),
                    reduced.instructions()
                );
                taken += usize::from(result > 0);
                refused += usize::from(result == 0);
            }
        }
        assert!(
            shorter > 4_000 && taken > 5_000 && refused > 20_000,
            "{shorter} {taken} {refused}"
        );
    }

    /// `first or second or ...`: each primitive tests the EtherType and the protocol again.
    fn ports(ports: impl Iterator<Item = u32>) -> Vec<Instruction> {
        let mut program = Vec::new();
        for port in ports {
            for (code, jt, jf, k) in [
                (0x28, 0, 0, 12),
                (0x15, 0, 9, 0x800),
                (0x30, 0, 0, 23),
                (0x15, 2, 0, 6),
                (0x30, 0, 0, 23),
                (0x15, 0, 5, 17),
                (0x28, 0, 0, 20),
                (0x45, 3, 0, 0x1fff),
                (0xb1, 0, 0, 14),
                (0x48, 0, 0, 14),
                (0x15, 1, 0, port),
                // A jump over the return.
                (0x05, 0, 0, 1),
                (0x06, 0, 0, 96),
            ] {
                program.push(Instruction { code, jt, jf, k });
            }
        }
        program.push(Instruction { code: 0x06, jt: 0, jf: 0, k: 0 });
        program
    }

    #[test]
    fn a_chain_of_primitives_tests_each_field_once() {
        let plain = Filter::new(ports(1..=600)).unwrap();
        let reduced = plain.clone().reduced();
        assert!(!plain.is_for_kernel() && reduced.is_for_kernel());
        // Per port: header length, port, test, jump over the return, return. The other fields are
        // read only once.
        assert!(reduced.instructions().len() < 5 * 600, "{}", reduced.instructions().len());
        let mut frame = [0; 60];
        (frame[12], frame[14]) = (8, 0x45);
        for (protocol, port, taken) in [(6, 1, 96), (17, 600, 96), (17, 601, 0), (1, 1, 0)] {
            frame[23] = protocol;
            frame[34..36].copy_from_slice(&u16::to_be_bytes(port));
            for program in [&plain, &reduced] {
                assert_eq!(program.run(&frame, 60), taken, "{protocol} {port}");
            }
        }
    }

    #[test]
    fn contradictions_take_nothing() {
        let insn = |code, jt, jf, k| Instruction { code, jt, jf, k };
        // udp and vlan, in a file: the EtherType cannot be both.
        let both = Filter::new(vec![
            insn(0x28, 0, 0, 12),
            insn(0x15, 0, 3, 0x800),
            insn(0x28, 0, 0, 12),
            insn(0x15, 0, 1, 0x8100),
            insn(0x06, 0, 0, 96),
            insn(0x06, 0, 0, 0),
        ])
        .unwrap();
        assert!(!both.takes_nothing() && both.reduced().takes_nothing());
    }
}
