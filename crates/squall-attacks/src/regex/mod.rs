//! Generates texts that match a PCRE2 expression.
//!
//! ```text
//! pattern -> syntax (a tree) -> program (instructions) -> sample (octets, each with the allowed alternatives)
//! ```
//!
//! The sampler executes the instructions like a matcher. Where a matcher compares an octet, the
//! sampler adds a set of octets or narrows an existing one; where a matcher tries alternatives, so
//! does the sampler. Lookarounds are overlaid on the text. The sampler is not a matcher: callers
//! that need certainty must check the text with PCRE2.
//!
//! ```
//! use squall_attacks::regex::{Choices, Constraints, Expression, Flags};
//!
//! let expression = Expression::parse(r"^USER\s+(root|admin)[^\n]{8}", Flags::default()).unwrap();
//! let sampled = expression.sample(&Choices::plain(), &Constraints::default()).unwrap();
//! assert!(sampled.bytes().starts_with(b"USER root"));
//! assert!(sampled.text[9].allowed.has(b'%') && !sampled.text[9].allowed.has(b'\n'));
//! assert!(sampled.before.is_empty(), "nothing may stand before it");
//! ```

mod bytes;
mod program;
mod sample;
mod syntax;

pub use bytes::ByteSet;
pub use sample::{Choices, Constraints, Held, Sampled, Slot};
pub use syntax::{ExpressionError, Flags};

use program::Program;
use syntax::{Node, Syntax};

/// A parsed expression.
pub struct Expression {
    root: Node,
    program: Program,
    groups: u32,
    named: Vec<(String, u32)>,
}

impl Expression {
    /// Parses an expression.
    ///
    /// # Errors
    ///
    /// Position and reason, if the expression is invalid in PCRE2.
    pub fn parse(pattern: &str, flags: Flags) -> Result<Expression, ExpressionError> {
        let syntax = syntax::parse(pattern.as_bytes(), flags)?;
        let program = program::compile(&syntax);
        let named = syntax.names.iter().filter_map(|(name, groups)| {
            Some((String::from_utf8_lossy(name).into_owned(), *groups.first()?))
        });
        let named = named.collect();
        Ok(Expression { root: syntax.root, program, groups: syntax.groups, named })
    }

    /// Parses the expression of a rule.
    ///
    /// # Errors
    /// Position and reason, if the expression is invalid in PCRE2.
    pub fn of_rule(pcre: &squall_rules::Pcre) -> Result<Expression, ExpressionError> {
        let flags = Flags {
            caseless: pcre.caseless,
            dotall: pcre.dotall,
            multiline: pcre.multiline,
            extended: pcre.extended,
            anchored: pcre.anchored,
            dollar_end_only: pcre.dollar_end_only,
            ungreedy: pcre.ungreedy,
        };
        Expression::parse(&pcre.pattern, flags)
    }

    /// A text that matches the expression. `None` if none exists within the constraints, or none
    /// was found within [`Constraints::steps`].
    pub fn sample(&self, choices: &Choices, constraints: &Constraints<'_>) -> Option<Sampled> {
        let mut ways = Vec::new();
        if let Some(branch) = choices.branch {
            program::ways_of_branch(&self.root, branch % self.branches(), &mut ways);
        }
        sample::sample(&self.program, choices, &ways, constraints)
    }

    /// Tries [`Self::sample`] at each position of `constraints.canvas`, from first to last, and
    /// then at its end. The text is the whole canvas with additions.
    pub fn sample_onto(&self, choices: &Choices, constraints: &Constraints<'_>) -> Option<Sampled> {
        (constraints.start..=constraints.canvas.len())
            .find_map(|start| self.sample(choices, &Constraints { start, ..constraints.clone() }))
    }

    /// A copy that samples only texts in which group `group` captures `wanted`. `None` if no such
    /// group always participates in a match. The samples also match the original expression.
    pub fn with_group(&self, group: u32, wanted: &[u8]) -> Option<Expression> {
        let mut root = self.root.clone();
        if !require_of_group(&mut root, group, wanted) {
            return None;
        }
        let program = program::compile(&Syntax {
            root: root.clone(),
            groups: self.groups,
            names: Default::default(),
        });
        Some(Expression { root, program, groups: self.groups, named: self.named.clone() })
    }

    /// Number of branches in the alternatives of the expression. [`Choices::branch`] chooses one.
    pub fn branches(&self) -> u64 {
        program::branches(&self.root).max(1)
    }

    /// The number of a named group.
    pub fn group_named(&self, name: &str) -> Option<u32> {
        self.named.iter().find(|(known, _)| known == name).map(|(_, group)| *group)
    }

    /// Minimum length of a text.
    pub fn least_length(&self) -> usize {
        program::least_length(&self.root)
    }

    /// Octets that can start a match. `None` if the match may be empty, or the set cannot be
    /// determined.
    pub fn first_bytes(&self) -> Option<ByteSet> {
        first_bytes(&self.root)
    }

    /// Strings that every match contains. Each octet is a set, because it may be in either case if
    /// case is ignored.
    pub fn required_literals(&self) -> Vec<Vec<ByteSet>> {
        let mut found = Literals { done: Vec::new(), now: Vec::new() };
        found.visit(&self.root);
        found.end();
        found.done
    }
}

fn require_of_group(node: &mut Node, group: u32, wanted: &[u8]) -> bool {
    match node {
        Node::Capture(number, inside) if *number == group => {
            let inside = std::mem::replace(&mut **inside, Node::Empty);
            *node = Node::CaptureOf(group, Box::new(inside), wanted.to_vec());
            true
        }
        Node::Capture(_, node) | Node::Atomic(node) => require_of_group(node, group, wanted),
        // Only the last iteration counts for captures, so one iteration suffices.
        Node::Repeat { node, min, .. } if *min <= 1 => {
            *min = 1;
            require_of_group(node, group, wanted)
        }
        Node::Concat(nodes) => nodes.iter_mut().any(|node| require_of_group(node, group, wanted)),
        Node::Alternate(ways) => {
            let Some(at) =
                (0..ways.len()).find(|at| require_of_group(&mut ways[*at], group, wanted))
            else {
                return false;
            };
            *node = ways.swap_remove(at);
            true
        }
        _ => false,
    }
}

fn first_bytes(node: &Node) -> Option<ByteSet> {
    match node {
        Node::Set(set, _) => Some(*set),
        Node::Concat(nodes) => {
            let mut set = ByteSet::NONE;
            for node in nodes {
                match node {
                    Node::Empty | Node::Assert(_) | Node::Look { .. } | Node::Keep => {}
                    Node::Repeat { node, min: 0, .. } => set = set.or(first_bytes(node)?),
                    node => return Some(set.or(first_bytes(node)?)),
                }
            }
            None
        }
        Node::Alternate(ways) => {
            ways.iter().try_fold(ByteSet::NONE, |set, way| Some(set.or(first_bytes(way)?)))
        }
        Node::Capture(_, node) | Node::Atomic(node) => first_bytes(node),
        Node::Repeat { node, min: 1.., .. } => first_bytes(node),
        _ => None,
    }
}

struct Literals {
    done: Vec<Vec<ByteSet>>,
    now: Vec<ByteSet>,
}

impl Literals {
    fn visit(&mut self, node: &Node) {
        match node {
            Node::Set(set, _)
                if set.len() == 1
                    || set
                        .iter()
                        .next()
                        .is_some_and(|byte| set == &ByteSet::letter(byte, true)) =>
            {
                self.now.push(*set);
            }
            Node::Concat(nodes) => nodes.iter().for_each(|node| self.visit(node)),
            Node::Capture(_, node) | Node::Atomic(node) => self.visit(node),
            Node::Repeat { node, min: 1.., .. } => {
                // The first iteration always happens, but the text after it is not certain.
                self.visit(node);
                self.end();
            }
            Node::Empty | Node::Assert(_) | Node::Keep | Node::Look { .. } => {}
            _ => self.end(),
        }
    }

    fn end(&mut self) {
        if !self.now.is_empty() {
            self.done.push(std::mem::take(&mut self.now));
        }
    }
}
