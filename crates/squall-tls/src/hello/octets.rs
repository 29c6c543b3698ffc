//! Octets and lists as TLS writes them (RFC 8446 section 3).

/// The rest of a message.
#[derive(Clone, Copy)]
pub(crate) struct Octets<'a>(pub &'a [u8]);

impl<'a> Octets<'a> {
    pub fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(n)?;
        self.0 = rest;
        Some(taken)
    }

    pub fn u8(&mut self) -> Option<u8> {
        self.take(1).map(|octets| octets[0])
    }

    pub fn u16(&mut self) -> Option<u16> {
        self.take(2).map(|octets| u16::from_be_bytes([octets[0], octets[1]]))
    }

    pub fn u24(&mut self) -> Option<usize> {
        self.take(3).map(|octets| {
            usize::from(octets[0]) << 16 | usize::from(octets[1]) << 8 | usize::from(octets[2])
        })
    }

    pub fn counted8(&mut self) -> Option<&'a [u8]> {
        let n = self.u8()?;
        self.take(n.into())
    }

    pub fn counted16(&mut self) -> Option<&'a [u8]> {
        let n = self.u16()?;
        self.take(n.into())
    }

    /// The value that `read` reads, if nothing is left after it.
    pub fn all<T>(mut self, read: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        read(&mut self).filter(|_| self.0.is_empty())
    }
}

/// Numbers of two octets; a single octet at the end is ignored.
pub(super) fn numbers(octets: &[u8]) -> impl Iterator<Item = u16> {
    octets.chunks_exact(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]]))
}

/// Appends what `write` appends, with its length in front.
///
/// # Panics
/// If it has 2^16 octets or more: the limits of [`super::Fresh`] keep it shorter.
pub(super) fn counted16(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let at = out.len();
    out.extend([0, 0]);
    write(out);
    let n = u16::try_from(out.len() - at - 2).expect("a hello is shorter than 2^16 octets");
    out[at..at + 2].copy_from_slice(&n.to_be_bytes());
}

/// The content of the extension for protocols (RFC 7301 section 3.1): each of 1 to 255 octets, all
/// of at most 4,096.
pub(super) fn alpn<'a>(protocols: impl Iterator<Item = &'a [u8]>) -> Option<Box<[u8]>> {
    let mut list = vec![];
    for name in protocols {
        list.push(u8::try_from(name.len()).ok().filter(|n| *n > 0)?);
        list.extend_from_slice(name);
    }
    let n = u16::try_from(list.len()).ok().filter(|n| *n <= 4096)?;
    list.splice(0..0, n.to_be_bytes());
    Some(list.into())
}
