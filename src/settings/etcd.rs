//! `deployment.etcd`: where etcd is, and how to be let in.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use lockgate_plugin::Problem;
use lockgate_plugin::schema::closest;
use serde_json::Value;

use super::Home;
use super::read::Reader;
use crate::config::keyring::Keyring;

/// How to reach etcd.
#[derive(Clone, PartialEq, Eq)]
pub struct EtcdSettings {
    /// The servers.
    pub hosts: Vec<String>,
    /// What all keys begin with.
    pub prefix: String,
    /// For one request, whichever of the servers answer.
    pub timeout: Duration,
    /// Between tries after a failure, with half of it more at random.
    pub resync: Duration,
    /// The longest a watch may say nothing.
    pub watch: Duration,
    /// How long a server that failed is not asked, while others answer.
    pub rest: Duration,
    /// Further tries at the start.
    pub retries: u32,
    /// Name and password.
    pub user: Option<(String, String)>,
    /// TLS.
    pub tls: EtcdTls,
}

/// TLS towards etcd.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EtcdTls {
    /// The certificate that is shown, and its key.
    pub cert: Option<(PathBuf, PathBuf)>,
    /// Whether the servers' certificates are not verified.
    pub insecure: bool,
    /// Who signs the servers' certificates; the system's own when absent.
    pub ca: Option<PathBuf>,
}

impl fmt::Debug for EtcdSettings {
    /// Without the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "EtcdSettings {{ hosts: {:?}, prefix: {:?} }}",
            self.hosts, self.prefix
        )
    }
}

/// Overrides the list of servers, with a list in JSON. Source: APISIX.
const HOSTS_ENV: &str = "APISIX_DEPLOYMENT_ETCD_HOST";

/// What a server is written as.
const ADDRESS: &str = "an address such as http://127.0.0.1:2379";

/// What the section may hold.
const KEYS: [&str; 10] = [
    "host",
    "prefix",
    "timeout",
    "startup_retry",
    "user",
    "password",
    "tls",
    "watch_timeout",
    "resync_delay",
    "health_check_timeout",
];

/// The section at `path`, `deployment.etcd` or its old name.
pub(super) fn etcd(
    read: &mut Reader<'_>,
    path: &str,
    home: &Home,
    env: &dyn Fn(&str) -> Option<String>,
) -> EtcdSettings {
    known(read, path);
    let at = |name: &str| format!("{path}.{name}");
    let hosts = match env(HOSTS_ENV).filter(|text| !text.is_empty()) {
        Some(text) => match serde_json::from_str::<Value>(&text) {
            // A text may hold a password: it is not shown.
            Ok(list @ Value::Array(_)) => hosts(&list, |place, problem| {
                let problem = problem.map(|_| format!("expected {ADDRESS}"));
                let (Ok(text) | Err(text)) = problem.map_err(str::to_owned);
                read.fail(path, format!("{HOSTS_ENV}{place}: {text}"));
            }),
            _ => {
                read.fail(path, format!("{HOSTS_ENV} is no list of texts in JSON"));
                Vec::new()
            }
        },
        None => match read.value(&at("host")) {
            Some(value) => hosts(value, |place, problem| {
                let path = format!("{}{place}", at("host"));
                match problem {
                    Ok(wrong) => read.wrong(&path, ADDRESS, wrong),
                    Err(text) => read.fail(&path, text),
                }
            }),
            None => vec!["http://127.0.0.1:2379".to_owned()],
        },
    };
    let user = read.text(&at("user")).filter(|user| !user.is_empty());
    let password = read.text(&at("password")).unwrap_or_default();
    let retries = read.integer(&at("startup_retry"), 0, 1000).unwrap_or(2);
    let prefix = read.text(&at("prefix"));
    EtcdSettings {
        hosts,
        prefix: prefix.unwrap_or_else(|| "/apisix".to_owned()),
        timeout: read.duration(&at("timeout"), Duration::from_secs(30)),
        resync: read.duration(&at("resync_delay"), Duration::from_secs(5)),
        watch: read.duration(&at("watch_timeout"), Duration::from_secs(50)),
        rest: read.duration(&at("health_check_timeout"), Duration::from_secs(10)),
        retries: u32::try_from(retries).unwrap_or(2),
        user: user.map(|user| (user, password)),
        tls: tls(read, path, home),
    }
}

/// The servers of a list, or the one. `fail` is told where something is wrong: what stands there
/// instead of an address, or what is wrong with the whole.
fn hosts(value: &Value, mut fail: impl FnMut(&str, Result<&Value, &'static str>)) -> Vec<String> {
    let list = match value {
        Value::Array(list) => list.as_slice(),
        one => std::slice::from_ref(one),
    };
    let mut out = Vec::new();
    for (at, item) in list.iter().enumerate() {
        let good = |text: &&str| text.starts_with("http://") || text.starts_with("https://");
        match item.as_str().filter(good) {
            Some(text) => out.push(text.trim_end_matches('/').to_owned()),
            None => fail(&format!("[{at}]"), Ok(item)),
        }
    }
    if list.is_empty() {
        fail("", Err("there is no server in the list"));
    }
    out
}

fn tls(read: &mut Reader<'_>, path: &str, home: &Home) -> EtcdTls {
    let mut file = |name: &str| {
        let text = read.text(&format!("{path}.tls.{name}"));
        let text = text.filter(|text| !text.is_empty());
        text.map(|text| home.path(&text))
    };
    let cert = match (file("cert"), file("key")) {
        (Some(cert), Some(key)) => Some((cert, key)),
        (None, None) => None,
        _ => {
            read.fail(&format!("{path}.tls"), "cert and key belong together");
            None
        }
    };
    if read.text(&format!("{path}.tls.sni")).is_some() {
        let text = "has no effect: the name of the host is asked for";
        read.warn(Problem::new(format!("{path}.tls.sni"), text));
    }
    let ca = read.text("apisix.ssl.ssl_trusted_certificate");
    let ca = ca.filter(|text| !matches!(text.as_str(), "" | "system"));
    EtcdTls {
        cert,
        insecure: !read.flag(&format!("{path}.tls.verify"), true),
        ca: ca.map(|text| home.path(&text)),
    }
}

/// `apisix.data_encryption`: what is encrypted in etcd. Source of the keys: APISIX's own defaults,
/// which everybody knows.
pub(super) fn keyring(read: &mut Reader<'_>) -> Keyring {
    let section = "apisix.data_encryption";
    let on = read.flag(&format!("{section}.enable"), true)
        && read.flag(&format!("{section}.enable_encrypt_fields"), true);
    if !on {
        return Keyring::default();
    }
    let path = format!("{section}.keyring");
    let keys = match read.value(&path) {
        None => vec!["qeddd145sfvddff3".to_owned(), "edd1c9f0985e76a2".to_owned()],
        Some(Value::String(one)) => vec![one.clone()],
        Some(Value::Array(list)) if list.iter().all(Value::is_string) => list
            .iter()
            .filter_map(Value::as_str)
            .map(str::to_owned)
            .collect(),
        Some(other) => {
            read.wrong(&path, "a key or a list of keys", other);
            return Keyring::default();
        }
    };
    Keyring::new(keys).unwrap_or_else(|text| {
        read.fail(&path, text);
        Keyring::default()
    })
}

/// Reports what stands in the section and is no key of it.
fn known(read: &mut Reader<'_>, path: &str) {
    let tls = format!("{path}.tls");
    for (path, keys) in [
        (path, KEYS.as_slice()),
        (&tls, &["cert", "key", "verify", "sni"]),
    ] {
        let Some(Value::Object(map)) = read.value(path) else {
            continue;
        };
        for name in map.keys().filter(|name| !keys.contains(&name.as_str())) {
            let mut problem =
                Problem::new(format!("{path}.{name}"), format!("unknown key `{name}`"));
            let close = closest(name, keys.iter().copied());
            problem.hint = close.map(|close| format!("did you mean `{close}`?"));
            read.push(problem);
        }
    }
}
