//! Short forms: profiles with one stream, one replay, one kind of flows or one kind of attacks,
//! made from the arguments of a command.
//!
//! The arguments become tables in the same tree as for a file, and are read by the same code.
//! Errors name the argument in place of line and column.

mod attacks;
mod flows;
mod hosts;
mod replays;
mod routers;
mod streams;

use super::{
    node::{Entry, Node, Value},
    read::Reader,
};
use crate::{Diagnostic, Diagnostics, Profile};

pub use self::{
    attacks::attack,
    flows::{app, http, serve},
    hosts::hosts,
    replays::{conversations, replay},
    routers::router,
    streams::stream,
};

/// An argument of the command line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Argument {
    /// The key in the profile, such as `loop_delay`.
    pub key: String,
    /// The name in messages: `--rate`, or `--vary TEXT` if it is repeatable.
    pub name: String,
    /// The text; `None` for a flag.
    pub text: Option<String>,
}

/// The arguments of a command. `command` is its name in messages.
#[derive(Clone, Copy, Debug)]
pub struct Short<'a> {
    pub command: &'a str,
    /// Addresses of the ports A, B, ...
    pub ports: &'a [&'a str],
    pub arguments: &'a [Argument],
}

impl<'a> Short<'a> {
    /// Each argument with its number, from 1. The number serves as the position of the argument's
    /// values.
    fn all(&self) -> impl Iterator<Item = Numbered<'a>> + use<'a> {
        self.arguments.iter().enumerate().map(|(i, of)| Numbered { number: i + 1, of })
    }

    /// Reads the profile that consists of `tables` and the ports.
    fn profile(self, tables: Table) -> Result<Profile, Diagnostics> {
        let mut ports = Table::default();
        for (name, address) in ["A", "B"].into_iter().zip(self.ports) {
            ports.set(name, *address);
        }
        let mut all = Table::default();
        all.set("ports", ports);
        all.0.extend(tables.0);
        super::read(Ok(all.into()), Reader::of_arguments(self.command, self.arguments))
    }

    fn mistake(&self, of: Numbered<'_>, message: &str, hint: &str) -> Diagnostics {
        let origin = format!("{}: {}", self.command, of.of.name);
        let details = if hint.is_empty() { Vec::new() } else { vec![hint.to_owned()] };
        let message = message.to_owned();
        Diagnostics(vec![Diagnostic { origin, message, details, ..Diagnostic::default() }])
    }

    /// Splits `NAME=VALUE` into name and value.
    fn pair(&self, one: Numbered<'a>) -> Result<(&'a str, &'a str), Diagnostics> {
        let pair = one.text().split_once('=').filter(|(name, _)| !name.is_empty());
        pair.ok_or_else(|| self.mistake(one, "expected NAME=VALUE", ""))
    }

    /// Sets a key from `NAME=VALUE`. The last one wins.
    fn set_pair(&self, table: &mut Table, one: Numbered<'a>) -> Result<(), Diagnostics> {
        let (name, value) = self.pair(one)?;
        table.set(name, one.node(value.into()));
        Ok(())
    }
}

/// An argument and its number.
#[derive(Clone, Copy)]
struct Numbered<'a> {
    number: usize,
    of: &'a Argument,
}

impl<'a> Numbered<'a> {
    fn key(&self) -> &'a str {
        &self.of.key
    }

    fn text(&self) -> &'a str {
        self.of.text.as_deref().unwrap_or_default()
    }

    /// A node with `value`, where the position of all parts is this argument.
    fn node(&self, value: Value) -> Node {
        fn place(node: &mut Node, number: usize) {
            (node.start, node.end) = (number, number);
            match &mut node.value {
                Value::List(items) => items.iter_mut().for_each(|item| place(item, number)),
                Value::Table(entries) => entries.iter_mut().for_each(|entry| {
                    entry.start = number;
                    place(&mut entry.node, number);
                }),
                _ => {}
            }
        }
        let mut node = Node::from(value);
        place(&mut node, self.number);
        node
    }

    /// The number in the argument, followed by a unit.
    fn unit(&self, unit: &str) -> Node {
        self.node(format!("{} {unit}", self.text()).as_str().into())
    }

    /// The value of the argument: true for a flag, otherwise its text.
    fn value(&self) -> Node {
        self.node(self.of.text.as_deref().map_or(Value::Bool(true), Value::from))
    }
}

/// A table under construction.
#[derive(Clone, Default)]
struct Table(Vec<Entry>);

impl Table {
    /// Adds a value to `key`. Several values become a list.
    fn add(&mut self, key: &str, value: Node) {
        let Some(entry) = self.0.iter_mut().find(|entry| entry.key == key) else {
            self.0.push(Entry { key: key.to_owned(), start: value.start, node: value });
            return;
        };
        match &mut entry.node.value {
            Value::List(items) => items.push(value),
            _ => {
                let first = entry.node.clone();
                entry.node.value = Value::List(vec![first, value]);
            }
        }
    }

    /// Appends to the list in `key`.
    fn append(&mut self, key: &str, value: Node) {
        if !self.has(key) {
            self.set(key, Value::List(Vec::new()));
        }
        self.add(key, value);
    }

    /// Sets `key`. Replaces earlier values.
    fn set(&mut self, key: &str, value: impl Into<Node>) {
        self.0.retain(|entry| entry.key != key);
        self.add(key, value.into());
    }

    /// Sets `key` to `table`, unless that is empty.
    fn set_some(&mut self, key: &str, table: Self) {
        if !table.0.is_empty() {
            self.set(key, table);
        }
    }

    fn has(&self, key: &str) -> bool {
        self.0.iter().any(|entry| entry.key == key)
    }
}

/// A value that belongs to no argument.
impl<T: Into<Value>> From<T> for Node {
    fn from(value: T) -> Self {
        Self { start: 0, end: 0, value: value.into() }
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<bool> for Value {
    fn from(truth: bool) -> Self {
        Self::Bool(truth)
    }
}

impl From<Table> for Value {
    fn from(Table(entries): Table) -> Self {
        Self::Table(entries)
    }
}

impl<T: Into<Value>> FromIterator<T> for Value {
    fn from_iter<I: IntoIterator<Item = T>>(values: I) -> Self {
        Self::List(values.into_iter().map(Node::from).collect())
    }
}

/// Text as a number, if possible. A profile accepts both, but messages then show `64` and not
/// `"64"`.
fn scalar(text: &str) -> Value {
    let text = text.trim();
    let whole = text.parse::<u64>().ok().map(|number| Value::Integer(number.into()));
    whole.or_else(|| text.parse().ok().map(Value::Float)).unwrap_or_else(|| text.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    type Form = fn(Short<'_>) -> Result<Profile, Diagnostics>;
    /// Key and text of an argument.
    type Given = (&'static str, &'static str);

    fn read(form: Form, arguments: &[(&str, &str)]) -> Result<Profile, Diagnostics> {
        read_on(&["loop:a", "loop:b"], form, arguments)
    }

    fn read_on(
        ports: &[&str],
        form: Form,
        arguments: &[(&str, &str)],
    ) -> Result<Profile, Diagnostics> {
        let argument = |(key, text): &(&str, &str)| Argument {
            key: (*key).to_owned(),
            name: format!("--{key}"),
            text: Some((*text).to_owned()),
        };
        let arguments: Vec<_> = arguments.iter().map(argument).collect();
        form(Short { command: "squall", ports, arguments: &arguments })
    }

    #[test]
    fn rates_of_hosts_have_one_form() {
        for text in ["2000", "2k", "2000/s", "2 k/s", "2kpps", "2000pps"] {
            let rates = [("setup", text), ("ping_rate", text), ("ping", "10.0.0.1")];
            let group = read_on(&["loop:a"], hosts, &rates).unwrap().hosts.remove(0);
            assert_eq!((group.setup, group.ping_rate), (Some(2000), 2000), "{text}");
        }
        let error = read_on(&["loop:a"], hosts, &[("setup", "2 Mbps")]).unwrap_err().to_string();
        assert!(error.contains("setup = \"2 Mbps\""), "{error}");
    }

    #[test]
    fn a_router_speaks_a_protocol_over_the_families_that_it_has_addresses_of() {
        let router = |arguments: &[(&str, &str)]| {
            read_on(&["loop:a"], router, arguments).map(|mut profile| profile.routers.remove(0))
        };
        let (four, six) = (("address", "10.0.0.1/24"), ("address", "2001:db8::1/64"));
        let area = ("area", "0.0.0.1");
        let one = router(&[four, six, area, ("routes", "198.51.100.0/24 x 2")]).unwrap();
        let ospf = Some([0, 0, 0, 1].into());
        assert_eq!((one.ospf, one.ospf3, one.rip, one.ripng), (ospf, ospf, false, false));
        let one = router(&[area, six]).unwrap();
        assert_eq!((one.ospf, one.ospf3), (None, ospf));
        let neighbors = [("neighbors", "10.0.0.2 as 65002"), ("neighbors", "10.0.0.3")];
        let bgp = [&[four, ("asn", "65001"), ("med", "7")], &neighbors[..]].concat();
        let one = router(&bgp).unwrap();
        assert_eq!((one.asn, one.med, one.neighbors.len()), (Some(65001), Some(7), 2));
        let isis = [("isis", "49"), ("isis_level", "2"), ("isis_metric", "7")];
        let one = router(&[&isis[..], &[four, ("isis_network", "point-to-point")]].concat());
        let one = one.unwrap();
        assert_eq!((one.isis.as_deref(), one.isis_metric), (Some("49"), 7));
        assert_eq!(one.daemon, crate::RouterDaemon::Frr);
        let error = router(&[four, ("asn", "65001"), ("neighbors", "x")]).unwrap_err().to_string();
        assert!(error.contains("--neighbors") && error.contains("65002"), "{error}");
    }

    #[test]
    fn an_address_of_hosts_without_a_prefix_is_completed() {
        let error = |text| read(hosts, &[("ipv4", text)]).unwrap_err().to_string();
        let bare = error("10.0.0.2");
        assert!(bare.contains("prefix") && bare.contains("try \"10.0.0.2/24\""), "{bare}");
        assert!(error("10.0.0.2/33").contains("prefix of 1 to 32 bits"));
    }

    #[test]
    fn a_mistake_names_the_argument_in_every_form() {
        let clients = ("clients", "10.0.0.1");
        let forms: [(Form, &[Given], Given, &str); 5] = [
            (replay, &[("files", "a.pcap")], ("late", "later"), "late = \"later\" is not"),
            (replay, &[("files", "a.pcap")], ("pps_multi", "0"), "together = 0 is out of bounds"),
            (conversations, &[("files", "a.pcap")], ("within", "soon"), "within = \"soon\" is not"),
            (attack, &[("rules", "a.rules")], ("rate", "fast"), "rate = \"fast\" is not a number"),
            (
                |short| app(short, "http"),
                &[clients, ("servers", "10.0.1.1")],
                ("cps", "many"),
                "cps = \"many\" is not a number",
            ),
        ];
        for (form, right, wrong, expected) in forms {
            let all = [right, &[wrong][..]].concat();
            let found = read(form, &all).unwrap_err().to_string();
            let (argument, _) = wrong;
            let first = found.lines().next().unwrap_or_default();
            assert!(first.starts_with(&format!("squall: --{argument}  ")), "{found}");
            assert!(first.contains(expected), "{found}");
        }
    }

    #[test]
    fn of_a_setting_that_is_given_twice_the_last_counts() {
        let twice = [
            ("clients", "10.0.0.1"),
            ("servers", "10.0.1.1"),
            ("cps", "5"),
            ("tcp", "mss=1000"),
            ("tcp", "mss=1200"),
            ("option", "header=A: 1"),
            ("option", "header=B: 2"),
        ];
        let value = read(|short| app(short, "http"), &twice).unwrap().to_value();
        let template = &value["template"][0];
        assert_eq!(template["tcp"]["mss"], "1200");
        assert_eq!(template["options"]["header"], serde_json::json!(["A: 1", "B: 2"]));
    }
}
