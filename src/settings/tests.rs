use super::*;

mod refused;

const MINIMAL: &str = "deployment: {role: data_plane, role_data_plane: {config_provider: yaml}}\n";

fn read(text: &str) -> Result<(Settings, Vec<Problem>), Problems> {
    let env = |name: &str| match name {
        "PORT" => Some("8080".to_owned()),
        "FLAG" => Some("true".to_owned()),
        "SECRET" => Some("edd1 c9f0".to_owned()),
        _ => None,
    };
    parse(
        format!("{MINIMAL}{text}").as_bytes(),
        Path::new("/etc/lockgate/conf/config.yaml"),
        &env,
        &["echo"],
    )
}

fn good(text: &str) -> Settings {
    read(text).unwrap_or_else(|e| panic!("{text}: {e}")).0
}

/// The problems without the file name.
#[track_caller]
fn bad(text: &str, expected: &[&str]) {
    let problems = read(text).err().unwrap_or_default();
    let got: Vec<String> = problems
        .iter()
        .map(|p| p.to_string().replace("/etc/lockgate/conf/config.yaml:", ""))
        .collect();
    assert_eq!(got, expected, "{text}");
}

#[track_caller]
fn warned(text: &str, expected: &[&str]) {
    let (_, warnings) = read(text).unwrap_or_else(|e| panic!("{text}: {e}"));
    let got: Vec<String> = warnings
        .iter()
        .map(|p| format!("{}: {}", p.path, p.message))
        .collect();
    assert_eq!(got, expected, "{text}");
}

fn addrs(listen: &[Listen]) -> Vec<String> {
    listen.iter().map(|l| l.addr.to_string()).collect()
}

#[test]
fn a_listener_or_everything_on_the_general_lane() {
    let engine = good("").engine();
    assert!(!engine.general && engine.general_ports.is_empty());
    let engine = good("apisix: {node_listen: [80, {port: 81, engine: general}]}").engine();
    assert!(!engine.general && engine.general_ports.contains(&81));
    assert!(!engine.general_ports.contains(&80));
    assert!(good("lockgate: {engine: general}").engine().general);
}

#[test]
fn listeners_in_every_form() {
    let check =
        |text: &str, expected: &[&str]| assert_eq!(addrs(&good(text).listen), expected, "{text}");
    check("", &["0.0.0.0:9080", "[::]:9080"]);
    check(
        "apisix: {node_listen: 80, enable_ipv6: false}",
        &["0.0.0.0:80"],
    );
    check(
        "apisix: {node_listen: [80, 81], enable_ipv6: false}",
        &["0.0.0.0:80", "0.0.0.0:81"],
    );
    check(
        "apisix: {node_listen: [{ip: 127.0.0.1, port: 80}, {ip: '::1', port: 81}]}",
        &["127.0.0.1:80", "[::1]:81"],
    );
    check(
        "apisix: {node_listen: '${{PORT}}', enable_ipv6: false}",
        &["0.0.0.0:8080"],
    );
    check(
        "apisix: {node_listen: '${{NONE:=7000}}', enable_ipv6: false}",
        &["0.0.0.0:7000"],
    );
    let tls =
        good("apisix: {ssl: {listen: [{port: 443}], fallback_sni: a.test}, enable_ipv6: false}")
            .tls;
    assert_eq!(addrs(&tls.listen), ["0.0.0.0:443"]);
    assert!(good("apisix: {ssl: {enable: false}}").tls.listen.is_empty());
}

#[test]
fn values_of_every_kind() {
    let settings = good(
        "apisix: {router: {http: radixtree_uri}, delete_uri_tail_slash: true, trusted_addresses: [10.0.0.0/8]}\n\
         nginx_config:\n  worker_processes: 3\n  worker_shutdown_timeout: 1m\n  error_log_level: error\n  \
         http: {client_max_body_size: 10m, send_timeout: 5, access_log: off.log, access_log_format_escape: json}\n\
         lockgate: {drain_seconds: 3}\n",
    );
    assert_eq!(settings.router, Mode::Uri);
    assert!(settings.match_options.delete_tail_slash);
    assert_eq!(settings.workers, 3);
    assert_eq!(settings.shutdown_timeout, Duration::from_secs(60));
    assert_eq!(settings.client.max_body, 10 << 20);
    assert_eq!(settings.client.send, Duration::from_secs(5));
    assert_eq!(settings.lockgate.drain, Duration::from_secs(3));
    assert_eq!(
        settings.source,
        SourceKind::Yaml("/etc/lockgate/conf/apisix.yaml".into())
    );
    let log = settings.access_log.unwrap();
    assert_eq!(
        (log.path, log.escape),
        ("/etc/lockgate/off.log".into(), Escape::Json)
    );
}

#[test]
fn null_takes_trust_away() {
    assert_eq!(good("").real_ip.from.len(), 1);
    assert_eq!(
        good("nginx_config: {http: {real_ip_from: }}").real_ip.from,
        []
    );
    assert_eq!(
        good("nginx_config: {http: {real_ip_from: ['unix:', '::1']}}")
            .real_ip
            .from,
        ["::1/128".parse().unwrap()]
    );
}

#[test]
fn the_environment_sets_workers() {
    let check = |value: &str, expected: Result<usize, &str>| {
        let env = |name: &str| (name == "APISIX_WORKER_PROCESSES").then(|| value.to_owned());
        let text = format!("{MINIMAL}nginx_config: {{worker_processes: 3}}\n");
        let read = parse(text.as_bytes(), Path::new("c.yaml"), &env, &[]);
        let got = read
            .map(|(settings, _)| settings.workers)
            .map_err(|e| e.to_string());
        assert_eq!(
            got.as_ref().map_err(String::as_str),
            expected.as_ref().map_err(|e| *e)
        );
    };
    check("5", Ok(5));
    check("", Ok(3));
    check(
        "0",
        Err(
            "c.yaml:2:16: nginx_config.worker_processes: environment variable APISIX_WORKER_PROCESSES: expected auto or a whole number from 1 to 1024, found `0`",
        ),
    );
    check(
        "many",
        Err(
            "c.yaml:2:16: nginx_config.worker_processes: environment variable APISIX_WORKER_PROCESSES: expected auto or a whole number from 1 to 1024, found `many`",
        ),
    );
}

#[test]
fn conflicts_between_listeners() {
    bad(
        "apisix: {node_listen: 9443, enable_ipv6: false}\n",
        &["2:1: apisix.ssl.listen: https listen port 9443 conflicts with http listen"],
    );
    bad(
        "apisix: {node_listen: 7085, enable_ipv6: false}\n",
        &["2:1: apisix.status.port: status port 7085 conflicts with http listen"],
    );
    bad(
        "apisix: {node_listen: [80, 80]}\n",
        &["2:10: apisix.node_listen: http listen port 80 conflicts with http listen"],
    );
    bad(
        "apisix: {node_listen: [{ip: 127.0.0.1, port: 80}, {ip: 127.0.0.2, port: 80}]}\n",
        &[],
    );
    bad(
        "apisix: {status: {port: 7000}}\nplugin_attr: {prometheus: {export_addr: {port: 7000}}}\n",
        &[
            "3:42: plugin_attr.prometheus.export_addr.port: prometheus port 7000 conflicts with status",
        ],
    );
    bad(
        "apisix: {status: {port: 7000}}\nplugin_attr: {prometheus: {enable_export_server: false, export_addr: {port: 7000}}}\n",
        &[],
    );
    bad(
        "apisix: {node_listen: 7085, status: false, enable_ipv6: false}\n",
        &[],
    );
    bad(
        "apisix: {node_listen: [], ssl: {enable: false}}\n",
        &["2:10: apisix.node_listen: there is nothing to listen on"],
    );
}

#[test]
fn providers_that_are_not_there() {
    let read = |text: &str| {
        parse(text.as_bytes(), Path::new("c.yaml"), &|_| None, &[])
            .err()
            .map(|p| p.to_string())
            .unwrap_or_default()
    };
    let check = |text: &str, start: &str| {
        let got = read(text);
        assert!(
            got.starts_with(start) && got.contains("config_provider: yaml"),
            "{text}: {got}"
        );
    };
    check(
        "deployment: {role: data_plane, role_data_plane: {config_provider: xds}}",
        "c.yaml:1:50: deployment.role_data_plane.config_provider: xds is not available",
    );
    check(
        "deployment: {role: control_plane}",
        "c.yaml:1:14: deployment.role: control_plane is not available",
    );
}

#[test]
fn etcd() {
    let read = |text: &str, env: &[(&str, &str)]| {
        let env = |name: &str| {
            let found = env.iter().find(|(known, _)| *known == name)?;
            Some(found.1.to_owned())
        };
        parse(text.as_bytes(), Path::new("conf/config.yaml"), &env, &[])
    };
    let check = |text: &str, hosts: &[&str], prefix: &str, has_admin: bool| {
        let (settings, warnings) = read(text, &[]).unwrap_or_else(|e| panic!("{text}: {e}"));
        let SourceKind::Etcd(etcd) = settings.source else {
            panic!("{text}: {:?}", settings.source)
        };
        assert_eq!(etcd.hosts, hosts, "{text}");
        assert_eq!(etcd.prefix, prefix, "{text}");
        assert_eq!(settings.admin.is_some(), has_admin, "{text}");
        assert!(warnings.is_empty(), "{text}: {warnings:?}");
        etcd
    };
    let local = ["http://127.0.0.1:2379"];
    check("deployment: {etcd: {}}", &local, "/apisix", true);
    check(
        "deployment: {role_traditional: {config_provider: etcd}}",
        &local,
        "/apisix",
        true,
    );
    check("deployment: {role: data_plane}", &local, "/apisix", false);
    let etcd = check(
        "deployment: {etcd: {host: ['https://a:1/', 'https://b:2'], prefix: /other, timeout: 3, \
         startup_retry: 0, user: u, password: secret, watch_timeout: 50, resync_delay: 5, \
         tls: {cert: a.crt, key: a.key, verify: false}}}",
        &["https://a:1", "https://b:2"],
        "/other",
        true,
    );
    assert_eq!(etcd.timeout, Duration::from_secs(3));
    assert_eq!(etcd.retries, 0);
    assert_eq!(etcd.watch, Duration::from_secs(50));
    assert_eq!(etcd.resync, Duration::from_secs(5));
    assert_eq!(etcd.rest, Duration::from_secs(10));
    assert!(etcd.tls.insecure && etcd.tls.cert.is_some());
    assert!(!format!("{etcd:?}").contains("secret"));
    check(
        "etcd: {host: 'http://a:1'}",
        &["http://a:1"],
        "/apisix",
        true,
    );
    let hosts = [("APISIX_DEPLOYMENT_ETCD_HOST", r#"["http://e:1"]"#)];
    let (settings, _) = read("deployment: {etcd: {}}", &hosts).unwrap();
    assert_eq!(settings.source.to_string(), "etcd at http://e:1");
    // What the environment says is checked like what the file says.
    for (hosts, problem) in [
        (r#"["e:1"]"#, "HOST[0]: expected an address such as http://"),
        (
            r#"["http://e:1", 2]"#,
            "HOST[1]: expected an address such as http://",
        ),
        ("[]", "HOST: there is no server in the list"),
        ("http://e:1", "HOST is no list of texts in JSON"),
    ] {
        let env = [("APISIX_DEPLOYMENT_ETCD_HOST", hosts)];
        let found = read("deployment: {etcd: {}}", &env).err();
        let found = found.map(|p| p.to_string()).unwrap_or_default();
        assert!(found.contains(problem), "{hosts}: {found}");
        assert!(!found.contains("e:1"), "{hosts}: {found}");
    }
    for (etcd, problem) in [
        (
            "{hosts: []}",
            "etcd.hosts: unknown key `hosts` (did you mean `host`?)",
        ),
        ("{host: []}", "etcd.host: there is no server in the list"),
        (
            "{host: ['a:1']}",
            "etcd.host[0]: expected an address such as http://127.0.0.1:2379, found a text",
        ),
        ("{tls: {cert: a}}", "etcd.tls: cert and key belong together"),
        (
            "{tls: {crt: a}}",
            "etcd.tls.crt: unknown key `crt` (did you mean `cert`?)",
        ),
    ] {
        let found = read(&format!("deployment: {{etcd: {etcd}}}"), &[]).err();
        let found = found.unwrap_or_default().to_string();
        assert!(found.contains(problem), "{etcd}: {found}");
    }
}

#[test]
fn traditional_with_a_file_or_the_whole_configuration_at_once() {
    let check = |apisix: &str, source: SourceKind, has_admin: bool| {
        let text = format!(
            "deployment: {{role: traditional, role_traditional: {{config_provider: yaml}}}}\napisix: {apisix}\n"
        );
        let path = Path::new("conf/config.yaml");
        let (settings, warnings) = parse(text.as_bytes(), path, &|_| None, &[]).unwrap();
        assert_eq!(settings.source, source, "{apisix}");
        assert_eq!(settings.admin.is_some(), has_admin, "{apisix}");
        assert!(warnings.is_empty(), "{apisix}: {warnings:?}");
    };
    let file = SourceKind::Yaml("conf/apisix.yaml".into());
    check("{enable_admin: false}", file, false);
    check("{}", SourceKind::Memory, true);
}

#[test]
fn the_embedded_store_is_the_default() {
    let read = |text: &str| {
        let path = Path::new("conf/config.yaml");
        parse(text.as_bytes(), path, &|_| None, &[]).unwrap_or_else(|e| panic!("{text}: {e}"))
    };
    let check = |text: &str, file: &str| {
        let (settings, warnings) = read(text);
        assert_eq!(settings.source, SourceKind::Embedded(file.into()), "{text}");
        assert!(warnings.is_empty(), "{text}: {warnings:?}");
        settings.admin
    };
    let admin = check("apisix: {}", "./data/lockgate.redb").unwrap();
    assert_eq!(admin.listen.to_string(), "127.0.0.1:9180");
    assert!(admin.keys.is_empty() && admin.key_required && admin.cors && admin.tls.is_none());
    let nets: Vec<String> = admin.allow.iter().map(ToString::to_string).collect();
    assert_eq!(nets, ["127.0.0.0/24", "::1/128"]);
    let named = "deployment: {role: traditional, role_traditional: {config_provider: embedded}}\n\
                 lockgate: {store: /var/lib/a.redb}";
    check(named, "/var/lib/a.redb");
    assert!(check("apisix: {enable_admin: false}", "./data/lockgate.redb").is_none());
    let text = "deployment: {admin: {allow_admin: [], admin_listen: {ip: 0.0.0.0, port: 1}, https_admin: true, \
                admin_key: [{name: a, key: k, role: admin}, {name: v, key: w, role: viewer}, {key: ''}], \
                admin_api_mtls: {admin_ssl_cert: a.crt, admin_ssl_cert_key: a.key}}}";
    let admin = read(text).0.admin.unwrap();
    assert!(admin.allow.is_empty());
    assert_eq!(admin.listen.to_string(), "0.0.0.0:1");
    let keys: Vec<_> = admin
        .keys
        .iter()
        .map(|k| (k.key.as_str(), k.viewer))
        .collect();
    assert_eq!(keys, [("k", false), ("w", true)]);
    assert!(!format!("{admin:?}").contains("\"k\""));
    assert_eq!(admin.tls.unwrap().cert, Path::new("./a.crt"));
    let (_, warnings) = read("deployment: {admin: {admin_key_required: false}}");
    assert_eq!(warnings.len(), 1);
    for (admin, problem) in [
        (
            "{admin_api_version: v2}",
            "admin_api_version: answers in the form of `v2` are not offered, only `v3`",
        ),
        (
            "{https_admin: true}",
            "https_admin: needs admin_api_mtls.admin_ssl_cert",
        ),
        (
            "{admin_key: [{role: viewer}]}",
            "admin_key[0]: a viewer needs a key",
        ),
        (
            "{admin_key: [{kye: x}]}",
            "admin_key[0].kye: unknown key `kye`",
        ),
        (
            "{admin_key: [x]}",
            "admin_key[0]: expected a mapping of name, key and role, found a text",
        ),
        ("{admin_listen: {port: 9080}}", "admin port 9080 does not"),
    ] {
        let text = format!("deployment: {{admin: {admin}}}");
        let found = parse(text.as_bytes(), Path::new("c.yaml"), &|_| None, &[]).err();
        let found = found.unwrap_or_default().to_string();
        let problem = problem.replace(
            "admin port 9080 does not",
            "admin port 9080 conflicts with http listen",
        );
        assert!(found.contains(&problem), "{text}: {found}");
    }
}

#[test]
fn relative_paths_start_beside_conf() {
    let check = |config: &str, log: &str, source: &str| {
        let text = format!("{MINIMAL}nginx_config: {{error_log: logs/e.log}}");
        let (settings, _) = parse(text.as_bytes(), Path::new(config), &|_| None, &[]).unwrap();
        assert_eq!(settings.error_log.path, Some(log.into()), "{config}");
        assert_eq!(settings.source, SourceKind::Yaml(source.into()), "{config}");
    };
    check(
        "/opt/gw/conf/config.yaml",
        "/opt/gw/logs/e.log",
        "/opt/gw/conf/apisix.yaml",
    );
    check(
        "/opt/gw/config.yaml",
        "/opt/gw/logs/e.log",
        "/opt/gw/apisix.yaml",
    );
    check("conf/config.yaml", "./logs/e.log", "conf/apisix.yaml");
    check("config.yaml", "./logs/e.log", "./apisix.yaml");
}

#[test]
fn keys_without_effect_get_one_warning() {
    warned("apisix: {enable_reuseport: true, proxy_mode: http}", &[]);
    warned(
        "apisix: {stream_proxy: {tcp: [9100], udp: [9200]}}",
        &["apisix.stream_proxy: has no effect: TCP and UDP routes are not served by this version"],
    );
    warned("nginx_config: {http_configuration_snippet: ''}", &[]);
    warned(
        "nginx_config: {http_configuration_snippet: gzip on;}",
        &[
            "nginx_config.http_configuration_snippet: has no effect: there is no nginx to put configuration snippets into",
        ],
    );
    // The original's defaults, spelt out, ask for nothing else than what happens.
    warned(
        "apisix: {max_post_args_readable_size: 64, resolver_timeout: 5, ssl: {ssl_trusted_certificate: system, ssl_session_tickets: false}}\n\
         nginx_config: {http: {underscores_in_headers: 'on', proxy_ssl_server_name: true, upstream: {keepalive_requests: 1000}}}",
        &[],
    );
    warned(
        "apisix: {max_post_args_readable_size: 8, proxy_mode: stream}\n\
         nginx_config: {http: {underscores_in_headers: off, proxy_ssl_server_name: false}}",
        &[
            "apisix.max_post_args_readable_size: has no effect: 64 KiB of a request body can be matched by this version",
            "apisix.proxy_mode: has no effect: HTTP is served; TCP and UDP routes are not, by this version",
            "nginx_config.http.underscores_in_headers: has no effect: header names with underscores are always passed on",
            "nginx_config.http.proxy_ssl_server_name: has no effect: the server name is always sent to https upstreams",
        ],
    );
    warned(
        "discovery: {nacos: {host: ['http://127.0.0.1:8848']}, dns: {servers: []}}",
        &[
            "discovery: has no effect: service discovery is not run by this version: such upstreams have no nodes",
        ],
    );
    bad(
        "discovery: {nacso: {}}\n",
        &["2:13: discovery.nacso: unknown key `nacso` (did you mean `discovery.nacos`?)"],
    );
    // A data plane has no Admin API in the original either.
    warned("apisix: {enable_admin: true}", &[]);
    warned(
        "plugin_attr: {zipkin: {set_ngx_var: true}, prometheus: {export_uri: /m}}",
        &[],
    );
    warned(
        "plugins: [echo, jwt-auth]",
        &["plugins: not available in this version, resources that use them are refused: jwt-auth"],
    );
    warned(
        "plugins: [echo, jwt-atuh, zzz]",
        &[
            "plugins: not available in this version, resources that use them are refused: jwt-atuh (did you mean jwt-auth?), zzz",
        ],
    );
    // A plugin of one's own may have attributes; a misspelt name has not.
    warned(
        "plugins: [zzz]\nplugin_attr: {zzz: {a: 1}}",
        &["plugins: not available in this version, resources that use them are refused: zzz"],
    );
    bad(
        "plugin_attr: {promethues: {}}\n",
        &[
            "2:15: plugin_attr.promethues: unknown key `promethues` (did you mean `plugin_attr.prometheus`?)",
        ],
    );
}

#[test]
fn without_a_list_every_plugin_may_be_used() {
    let text = b"deployment: {role: data_plane, role_data_plane: {config_provider: yaml}}";
    let path = Path::new("conf/config.yaml");
    let read = parse(text, path, &|_| None, &["echo", "of-our-own"]);
    let (settings, _) = read.unwrap_or_else(|e| panic!("{e}"));
    let has = |name: &str| settings.plugins.iter().any(|other| other == name);
    assert!(has("echo") && has("of-our-own") && !has("node-status"));
}

#[test]
fn the_shipped_settings_load_without_a_word() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("conf/config.yaml");
    let names: Vec<&str> = lockgate_plugins::ALL.iter().map(|def| def.name).collect();
    let (settings, warnings) = load(&path, &|_| None, &names).unwrap_or_else(|e| panic!("{e}"));
    assert!(warnings.is_empty(), "{warnings:?}");
    assert_eq!(settings.listen[0].addr.port(), 9080);
}

#[test]
fn gateways_that_count_together() {
    let cluster = |text: &str| {
        good(&format!("lockgate: {{cluster: {{{text}}}}}"))
            .lockgate
            .cluster
    };
    assert_eq!(cluster(""), None);
    assert_eq!(
        cluster("listen: '[::1]:7946', secret: '0123456789abcdef'"),
        None
    );
    let named = "owner: true, listen: '0.0.0.0:7946', advertise: 'GW-1.internal:7946', \
                 peers: [gw-1.internal:7946, '10.0.0.2:7946'], timeout: 20ms, \
                 tls: {ca: conf/ca.crt, cert: a.crt, key: a.key}";
    let named = cluster(named).unwrap();
    assert_eq!(named.advertise, "gw-1.internal:7946");
    assert_eq!(named.timeout, Duration::from_millis(20));
    let peers = ["gw-1.internal:7946", "10.0.0.2:7946"].map(str::to_owned);
    assert_eq!(named.peers, Some(peers.to_vec()));
    let file = |name: &str| PathBuf::from("/etc/lockgate").join(name);
    let files = lockgate_peers::Identity::Certificate {
        ca: file("conf/ca.crt"),
        cert: file("a.crt"),
        key: file("a.key"),
    };
    assert_eq!(named.identity, files);
    let short = "owner: true, listen: '10.0.0.1:7946', peers: ['10.0.0.2:7946'], secret: '0123456789abcdef'";
    let short = cluster(short).unwrap();
    let peers = ["10.0.0.2:7946", "10.0.0.1:7946"].map(str::to_owned);
    assert_eq!(
        (short.advertise.as_str(), short.peers),
        ("10.0.0.1:7946", Some(peers.to_vec()))
    );
    assert!(!format!("{:?}", short.identity).contains("0123"));
}
