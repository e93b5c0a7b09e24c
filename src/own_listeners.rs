//! Which addresses this process itself listens on.
//!
//! That somebody accepts there does not say who: a process that was started by mistake beside a running one
//! finds all its addresses served. The kernel lists listening sockets by their inodes, and a process its own
//! by the same ones.

use std::collections::HashSet;
use std::fs;
use std::io::{self, BufRead, BufReader};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The state of a listening socket in the kernel's lists.
const LISTENING: &str = "0A";
/// Those lists: of the network that this process is in.
const LISTS: [&str; 2] = ["/proc/self/net/tcp", "/proc/self/net/tcp6"];
/// Where a process finds its own files.
const FILES: &str = "/proc/self/fd";

/// The addresses that this process listens on.
///
/// # Errors
/// When the kernel does not tell.
pub(crate) fn own() -> io::Result<HashSet<SocketAddr>> {
    let mut inodes = HashSet::new();
    for file in fs::read_dir(FILES)? {
        // One that is closed meanwhile is none.
        if let Ok(to) = fs::read_link(file?.path())
            && let Some(inode) = to.to_str().and_then(inode)
        {
            inodes.insert(inode);
        }
    }
    let mut found = HashSet::new();
    for list in LISTS {
        let file = match fs::File::open(list) {
            // Without IPv6 there is no such list.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            file => file?,
        };
        for line in BufReader::new(file).lines() {
            let listening = listening(&line?);
            found.extend(
                listening
                    .filter(|(_, inode)| inodes.contains(inode))
                    .map(|(address, _)| address),
            );
        }
    }
    Ok(found)
}

/// The inode of a socket, from what a link to it says.
fn inode(link: &str) -> Option<u64> {
    let number = link.strip_prefix("socket:[")?.strip_suffix(']')?;
    number.parse().ok()
}

/// The address and the inode in a line of the kernel's, where that is of a listening socket.
fn listening(line: &str) -> Option<(SocketAddr, u64)> {
    let mut words = line.split_ascii_whitespace();
    let address = address(words.nth(1)?)?;
    (words.nth(1)? == LISTENING).then_some(())?;
    Some((address, words.nth(5)?.parse().ok()?))
}

/// `0100007F:1F90`: words in the order of this machine's bytes.
fn address(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.split_once(':')?;
    let word = |at: usize| {
        let word = ip.get(at * 8..at * 8 + 8)?;
        Some(u32::from_str_radix(word, 16).ok()?.to_ne_bytes())
    };
    let ip: IpAddr = match ip.len() {
        8 => Ipv4Addr::from(word(0)?).into(),
        32 => {
            let mut bytes = [0; 16];
            for (at, part) in bytes.chunks_exact_mut(4).enumerate() {
                part.copy_from_slice(&word(at)?);
            }
            Ipv6Addr::from(bytes).into()
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip, u16::from_str_radix(port, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn lines_of_the_kernel() {
        let line = |address: &str, state: &str| {
            format!(
                "   0: {address} 00000000:0000 {state} 00000000:00000000 00:00000000 00000000     0        0 4711 1 0000000000000000 100 0 0 10 0"
            )
        };
        let local = u32::from_ne_bytes([127, 0, 0, 1]);
        let got = listening(&line(&format!("{local:08X}:1F90"), LISTENING));
        assert_eq!(got, Some(("127.0.0.1:8080".parse().unwrap(), 4711)));
        let last = u32::from_ne_bytes([0, 0, 0, 1]);
        let got = listening(&line(&format!("{:024X}{last:08X}:0050", 0), LISTENING));
        assert_eq!(got, Some(("[::1]:80".parse().unwrap(), 4711)));
        assert_eq!(listening(&line("0100007F:1F90", "01")), None);
        for bad in ["", "sl local_address", "0: x 0 0A", "0: 0100007F:1F90"] {
            assert_eq!(listening(bad), None, "{bad}");
        }
    }

    #[test]
    fn own_listeners_are_found_and_those_of_others_are_not() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        assert!(own().unwrap().contains(&address));
        // Another process has it now; here it is closed.
        let mut other = Command::new("cat")
            .stdin(Stdio::piped())
            .stdout(std::os::fd::OwnedFd::from(listener))
            .spawn()
            .unwrap();
        assert!(std::net::TcpStream::connect(address).is_ok());
        assert!(!own().unwrap().contains(&address));
        drop(other.stdin.take());
        other.wait().unwrap();
    }
}
