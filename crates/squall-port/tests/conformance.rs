//! Checks that this crate's ports keep the guarantees of all ports.

use std::io;

use squall_port::{
    Port,
    conformance::{Bench, check},
    open,
};

fn port(address: &str) -> io::Result<Box<dyn Port>> {
    Ok(open(&address.parse()?)?.expect("a port of this crate"))
}

fn check_link(address: &str) {
    check(Bench { open: &mut || Ok((port(address)?, Some(port(address)?))), stored: false });
}

#[test]
fn loop_conforms() {
    check_link("loop:conformance");
}

#[test]
fn loop_in_virtual_time_conforms() {
    check_link("loop:conformance-virtual,virtual");
}

#[test]
fn a_tiny_loop_conforms() {
    check_link("loop:conformance-tiny,ring=70,max_frame=1514");
}

#[test]
fn a_loop_with_refusals_of_its_queue_conforms() {
    check_link("loop:conformance-full,full=0.3,seed=4");
}

#[test]
fn null_conforms() {
    check(Bench { open: &mut || Ok((port("null:")?, None)), stored: false });
}

#[test]
fn pcap_conforms() {
    check_file("pcap");
}

#[test]
fn pcapng_conforms() {
    check_file("pcapng");
}

fn check_file(suffix: &str) {
    let file = std::env::temp_dir().join(format!("squall-port-{}.{suffix}", std::process::id()));
    let name = file.display();
    std::fs::write(&file, "").expect("the temporary directory is writable");
    let open = &mut || {
        let mut sending = port(&format!("pcap:{name}"))?;
        sending.permit(squall_port::output::Permit::FORCE);
        Ok((sending, Some(port(&format!("pcap:{name},read"))?)))
    };
    check(Bench { open, stored: true });
    std::fs::remove_file(&file).expect("the file was written");
}
