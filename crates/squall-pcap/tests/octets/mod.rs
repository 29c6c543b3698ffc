//! Builds files and blocks in either byte order, octet by octet. Independent of the writers, which
//! are under test as well.
#![allow(dead_code, reason = "each test takes what it needs")]

#[derive(Clone, Copy)]
pub enum Order {
    Little,
    Big,
}
impl Order {
    pub fn u16(self, n: u16) -> Vec<u8> {
        if let Self::Little = self { n.to_le_bytes().to_vec() } else { n.to_be_bytes().to_vec() }
    }

    pub fn u32(self, n: u32) -> Vec<u8> {
        if let Self::Little = self { n.to_le_bytes().to_vec() } else { n.to_be_bytes().to_vec() }
    }

    pub fn u32s(self, numbers: &[u32]) -> Vec<u8> {
        numbers.iter().flat_map(|&n| self.u32(n)).collect()
    }

    pub fn pcap(self, magic: u32, minor: u16, network: u32) -> Vec<u8> {
        [self.u32(magic), self.u16(2), self.u16(minor), self.u32s(&[0, 0, 65_535, network])]
            .concat()
    }

    pub fn block(self, kind: u32, body: &[u8]) -> Vec<u8> {
        let mut body = body.to_vec();
        body.resize(body.len().next_multiple_of(4), 0);
        let len = body.len() as u32 + 12;
        [self.u32s(&[kind, len]), body, self.u32(len)].concat()
    }

    pub fn section(self) -> Vec<u8> {
        self.block(
            0x0a0d_0d0a,
            &[self.u32(0x1a2b_3c4d), self.u16(1), self.u16(0), vec![0xff; 8]].concat(),
        )
    }

    pub fn option(self, code: u16, value: &[u8]) -> Vec<u8> {
        let mut value = value.to_vec();
        let len = value.len() as u16;
        value.resize(value.len().next_multiple_of(4), 0);
        [self.u16(code), self.u16(len), value].concat()
    }

    pub fn interface(self, link: u16, snaplen: u32, options: &[u8]) -> Vec<u8> {
        self.block(1, &[&self.u16(link), &self.u16(0), &self.u32(snaplen)[..], options].concat())
    }

    pub fn packet(
        self,
        interface: u32,
        ticks: u64,
        wire_len: u32,
        data: &[u8],
        options: &[u8],
    ) -> Vec<u8> {
        let header = self.u32s(&[
            interface,
            (ticks >> 32) as u32,
            ticks as u32,
            data.len() as u32,
            wire_len,
        ]);
        let padding = vec![0; data.len().next_multiple_of(4) - data.len()];
        self.block(6, &[&header, data, &padding[..], options].concat())
    }
}
