//! The table of headers: each field is defined here once; syntax, `--help`, reference and field programs read it.

/// One protocol header.
#[derive(Debug)]
pub struct HeaderDef {
    /// As in the packet syntax: `ipv4`.
    pub name: &'static str,
    /// Other spellings that the syntax takes: `ip`.
    pub aliases: &'static [&'static str],
    /// For the reference: "Internet Protocol version 4 (RFC 791)".
    pub title: &'static str,
    /// Octets of the fixed part.
    pub min_len: usize,
    pub fields: &'static [FieldDef],
}

/// One field of a header.
#[derive(Debug)]
pub struct FieldDef {
    pub name: &'static str,
    pub aliases: &'static [&'static str],
    /// Offset of the most significant bit from the start of the header.
    pub bit: usize,
    /// Width in bits, 1 to 128.
    pub bits: usize,
    pub kind: FieldKind,
    pub doc: &'static str,
}

#[derive(Debug)]
pub enum FieldKind {
    /// A number, decimal or 0x hex; also by name where names are listed.
    Number(&'static [(&'static str, u64)]),
    Mac,
    Ipv4,
    Ipv6,
    /// Letters or names joined by `|`, each a bit.
    Flags(&'static [(&'static str, u64)]),
    /// Filled from what follows, unless set.
    Length,
    /// Filled over what it covers, unless set; `bad` makes it deliberately wrong.
    Checksum,
}

/// All headers, in the order of the reference.
pub fn headers() -> &'static [&'static HeaderDef] {
    &[]
}
