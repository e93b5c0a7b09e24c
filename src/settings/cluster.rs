//! `lockgate.cluster`: gateways that count limits for each other.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use lockgate_peers::place::MOST_NODES;
use lockgate_peers::secure::SHORTEST_SECRET;
use lockgate_peers::{Identity, Setup};
use lockgate_plugin::Problem;
use serde_json::Value;

use super::read::Reader;
use super::{Home, SourceKind};

/// What a gateway has to know to count together with others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterSettings {
    /// Where it listens for the others.
    pub listen: SocketAddr,
    /// Where they reach it; its name, too.
    pub advertise: String,
    /// All of them, if they are not found in etcd.
    pub peers: Option<Vec<String>>,
    /// How it proves that it is one of them.
    pub identity: Identity,
    /// How long another may take for an answer.
    pub timeout: Duration,
}

impl ClusterSettings {
    /// The same, for those who connect and count.
    pub fn setup(&self) -> Setup {
        Setup {
            name: self.advertise.clone(),
            identity: self.identity.clone(),
            timeout: self.timeout,
            fixed: self.peers.clone(),
        }
    }
}

const SECTION: &str = "lockgate.cluster";
/// Long enough for a busy gateway, short enough that nobody notices.
const TIMEOUT: Duration = Duration::from_millis(100);
/// A request waits that long at most.
const LONGEST_TIMEOUT: Duration = Duration::from_secs(60);
/// The longest name of a host (RFC 1035), and what is around a port.
const LONGEST_NAME: usize = 253 + 8;
/// What an address is written as.
const ADDRESS: &str =
    "host:port, such as 192.0.2.1:7946, gateway-1.internal:7946 or [2001:db8::1]:7946";

/// The section; `None` unless it is switched on.
pub(super) fn cluster(
    read: &mut Reader<'_>,
    home: &Home,
    source: &SourceKind,
) -> Option<ClusterSettings> {
    let at = |name: &str| format!("{SECTION}.{name}");
    let on = read.flag(&at("owner"), false);
    let listen = listen(read, &at("listen"), on);
    let advertise = advertise(read, &at("advertise"), listen);
    let peers = peers(read, &at("peers"));
    let identity = identity(read, home, on);
    let timeout = read.duration(&at("timeout"), TIMEOUT);
    if timeout.is_zero() || timeout > LONGEST_TIMEOUT {
        read.fail(&at("timeout"), "must be more than 0 and at most 60s");
    }
    if !on {
        return None;
    }
    if peers.is_none()
        && read.value(&at("peers")).is_none()
        && !matches!(source, SourceKind::Etcd(_))
    {
        let text = "without etcd the gateways do not find each other: name all of them in `peers`";
        read.fail(SECTION, text);
    }
    let advertise = advertise?;
    let peers = peers.map(|mut peers| {
        if !peers.contains(&advertise) {
            peers.push(advertise.clone());
        }
        peers
    });
    if peers.as_ref().is_some_and(|peers| peers.len() > MOST_NODES) {
        read.fail(
            &at("peers"),
            format!("at most {MOST_NODES} gateways count together"),
        );
    }
    Some(ClusterSettings {
        listen: listen?,
        advertise,
        peers,
        identity: identity?,
        timeout,
    })
}

fn listen(read: &mut Reader<'_>, path: &str, on: bool) -> Option<SocketAddr> {
    let Some(value) = read.value(path) else {
        if on {
            let text = "say where to listen for the other gateways";
            read.push(Problem::new(SECTION, text).hint("listen: 0.0.0.0:7946"));
        }
        return None;
    };
    let found = value
        .as_str()
        .and_then(|text| text.parse::<SocketAddr>().ok());
    let found = found.filter(|addr| addr.port() != 0);
    if found.is_none() {
        read.wrong(path, "address:port, such as 0.0.0.0:7946", value);
    }
    found
}

/// Unless it is written, the address that is listened on, if that is one.
fn advertise(read: &mut Reader<'_>, path: &str, listen: Option<SocketAddr>) -> Option<String> {
    match read.value(path) {
        Some(value) => address(read, path, value),
        None => {
            let listen = listen?;
            if listen.ip().is_unspecified() {
                let text = "the others need one address to reach this gateway at: \
                            `listen` is every address";
                read.push(Problem::new(SECTION, text).hint("advertise: 192.0.2.1:7946"));
                return None;
            }
            Some(listen.to_string())
        }
    }
}

fn peers(read: &mut Reader<'_>, path: &str) -> Option<Vec<String>> {
    let value = read.value(path)?;
    let Value::Array(list) = value else {
        read.wrong(path, "a list of addresses", value);
        return None;
    };
    let mut peers = Vec::new();
    for (at, item) in list.iter().enumerate() {
        let path = format!("{path}[{at}]");
        let Some(peer) = address(read, &path, item) else {
            continue;
        };
        if peers.contains(&peer) {
            read.fail(&path, format!("`{peer}` is listed twice"));
        } else {
            peers.push(peer);
        }
    }
    if list.is_empty() {
        read.fail(path, "there is no gateway in the list");
    }
    (!peers.is_empty()).then_some(peers)
}

/// An address that others can connect to, in one form, so that it is one name.
fn address(read: &mut Reader<'_>, path: &str, value: &Value) -> Option<String> {
    let found = value.as_str().and_then(|text| {
        if let Ok(addr) = text.parse::<SocketAddr>() {
            let good = addr.port() != 0 && !addr.ip().is_unspecified();
            return good.then(|| addr.to_string());
        }
        let (host, port) = text.rsplit_once(':')?;
        let port = port.parse::<u16>().ok().filter(|port| *port != 0)?;
        let letters = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
        let good = !host.is_empty()
            && text.len() <= LONGEST_NAME
            && host.chars().all(letters)
            && host.parse::<IpAddr>().is_err()
            // An address with a part missing is no name.
            && host.chars().any(|c| c.is_ascii_alphabetic());
        good.then(|| format!("{}:{port}", host.to_ascii_lowercase()))
    });
    if found.is_none() {
        read.wrong(path, ADDRESS, value);
    }
    found
}

fn identity(read: &mut Reader<'_>, home: &Home, on: bool) -> Option<Identity> {
    let secret = read.text(&format!("{SECTION}.secret"));
    let mut file = |name: &str| {
        let text = read.text(&format!("{SECTION}.tls.{name}"));
        text.filter(|text| !text.is_empty())
            .map(|text| home.path(&text))
    };
    let files = (file("ca"), file("cert"), file("key"));
    let path = format!("{SECTION}.secret");
    match (secret, files) {
        (Some(secret), (None, None, None)) => {
            if secret.len() < SHORTEST_SECRET {
                let text =
                    format!("must have at least {SHORTEST_SECRET} bytes: it could be guessed");
                read.push(Problem::new(path, text).hint("openssl rand -hex 32"));
                return None;
            }
            Some(Identity::Secret(secret))
        }
        (None, (Some(ca), Some(cert), Some(key))) => Some(Identity::Certificate { ca, cert, key }),
        (None, (None, None, None)) => {
            if on {
                let text = "the gateways have to prove to each other who they are: \
                            set `tls` with ca, cert and key, or a `secret`";
                read.fail(SECTION, text);
            }
            None
        }
        (None, _) => {
            read.fail(
                &format!("{SECTION}.tls"),
                "ca, cert and key belong together",
            );
            None
        }
        (Some(_), _) => {
            read.fail(
                &path,
                "has no place beside `tls`: certificates say who is who",
            );
            None
        }
    }
}
