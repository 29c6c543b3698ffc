//! Replaces `squall-port-dpdk` in builds without the feature `dpdk`.

use std::io;

use squall_port::{Address, Port};

const WHY: &str = "this build does not include DPDK ports\n  try a build with the feature: cargo \
                   build --release -p squall-cli --features dpdk";

pub fn release() -> Result<String, &'static str> {
    Err("built without the feature dpdk")
}

pub fn open(address: &Address) -> io::Result<Option<Box<dyn Port>>> {
    match address.kind() {
        "dpdk" => Err(io::Error::new(io::ErrorKind::InvalidInput, WHY)),
        _ => Ok(None),
    }
}
