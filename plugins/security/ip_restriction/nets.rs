//! A set of networks that is searched in the time of its logarithm.

use std::net::IpAddr;

use ipnet::IpNet;

/// Address ranges, both ends included; disjoint and in order.
#[derive(Debug, Default)]
pub(super) struct Nets {
    v4: Vec<(u32, u32)>,
    v6: Vec<(u128, u128)>,
}

impl FromIterator<IpNet> for Nets {
    fn from_iter<I: IntoIterator<Item = IpNet>>(list: I) -> Nets {
        let mut nets = Nets::default();
        for net in list {
            // `::ffff:10.0.0.0/104` means IPv4 clients, which are looked up as such.
            match (net.network().to_canonical(), net.broadcast().to_canonical()) {
                (IpAddr::V4(first), IpAddr::V4(last)) => nets.v4.push((first.into(), last.into())),
                (IpAddr::V6(first), IpAddr::V6(last)) => nets.v6.push((first.into(), last.into())),
                // A network that is wider than the mapped range: its own ends are not mapped.
                _ => {}
            }
        }
        Nets {
            v4: merged(nets.v4),
            v6: merged(nets.v6),
        }
    }
}

impl Nets {
    /// Whether the address is in one of the networks. An IPv4 address may come mapped into IPv6.
    pub(super) fn contains(&self, ip: IpAddr) -> bool {
        match ip.to_canonical() {
            IpAddr::V4(ip) => within(&self.v4, ip.into()),
            IpAddr::V6(ip) => within(&self.v6, ip.into()),
        }
    }
}

/// Sorted, and overlapping ranges joined, so that a search needs to look at one only.
fn merged<T: Ord + Copy>(mut ranges: Vec<(T, T)>) -> Vec<(T, T)> {
    ranges.sort_unstable();
    let mut out: Vec<(T, T)> = Vec::with_capacity(ranges.len());
    for (first, last) in ranges {
        match out.last_mut() {
            Some(before) if first <= before.1 => before.1 = before.1.max(last),
            _ => out.push((first, last)),
        }
    }
    out
}

fn within<T: Ord + Copy>(ranges: &[(T, T)], at: T) -> bool {
    let after = ranges.partition_point(|(first, _)| *first <= at);
    after.checked_sub(1).is_some_and(|i| at <= ranges[i].1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockgate_plugin::network;

    fn check(list: &[&str], inside: &[&str], outside: &[&str]) {
        let nets: Nets = list.iter().map(|text| network(text).unwrap()).collect();
        for ip in inside {
            assert!(nets.contains(ip.parse().unwrap()), "{list:?} {ip}");
        }
        for ip in outside {
            assert!(!nets.contains(ip.parse().unwrap()), "{list:?} {ip}");
        }
    }

    #[test]
    fn members() {
        check(&[], &[], &["0.0.0.0", "::"]);
        check(
            &["10.0.0.0/8"],
            &["10.0.0.0", "10.255.255.255"],
            &["9.255.255.255", "11.0.0.0", "::"],
        );
        check(&["10.1.2.3/8"], &["10.0.0.1"], &["11.0.0.0"]);
        check(&["0.0.0.0/0"], &["0.0.0.0", "255.255.255.255"], &["::1"]);
        check(
            &["::/0"],
            &["::", "ffff::"],
            &["10.0.0.1", "::ffff:10.0.0.1"],
        );
        check(
            &["::ffff:10.0.0.0/104"],
            &["10.1.1.1", "::ffff:10.1.1.1"],
            &["11.0.0.0"],
        );
        // The long network hides the short ones that begin inside it.
        check(
            &[
                "10.0.1.0/24",
                "10.0.0.0/16",
                "10.0.2.1",
                "192.0.2.1",
                "192.0.2.3",
            ],
            &[
                "10.0.255.1",
                "10.0.2.1",
                "10.0.1.1",
                "192.0.2.1",
                "192.0.2.3",
            ],
            &["10.1.0.0", "192.0.2.2", "192.0.2.4", "1.1.1.1"],
        );
    }

    #[test]
    fn agrees_with_a_plain_search() {
        // Every address of a small space against overlapping networks of every size.
        let list: Vec<IpNet> = (0..64u32)
            .map(|i| {
                let ip = std::net::Ipv4Addr::from(0x0a00_0000 + (i * 37) % 256);
                IpNet::new(ip.into(), 24 + u8::try_from(i % 9).unwrap_or(0)).unwrap()
            })
            .skip(1)
            .filter(|net| net.prefix_len() > 25)
            .collect();
        let nets: Nets = list.iter().copied().collect();
        for host in 0..512u32 {
            let ip = IpAddr::from(std::net::Ipv4Addr::from(0x0a00_0000 - 128 + host));
            assert_eq!(
                nets.contains(ip),
                list.iter().any(|net| net.contains(&ip)),
                "{ip}"
            );
        }
    }
}
