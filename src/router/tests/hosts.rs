use super::*;

#[test]
fn hosts_first_in_host_mode() {
    let routes = [
        "any /a",
        "exact /* foo.com",
        "star /a *.foo.com",
        "deep /x/* *.a.foo.com",
        "near /y *foo.com",
    ];
    check(
        Mode::HostUri,
        &routes,
        &[
            ("GET foo.com/a", "exact"),
            ("GET FOO.com:9080/a", "exact"),
            ("GET b.foo.com/a", "star"),
            ("GET b.a.foo.com/a", "star"),
            ("GET b.a.foo.com/x/1", "deep"),
            ("GET b.a.foo.com/y", "near"),
            ("GET xfoo.com/y", "near"),
            ("GET a.foo.com/x/1", "-"),
            ("GET foo.com/y", "exact"),
            ("GET bar.com/a", "any"),
            ("GET bar.com/b", "-"),
        ],
    );
    check(
        Mode::HostUri,
        &["none /a", "all /* *"],
        &[("GET x/a", "all"), ("GET y/b", "all")],
    );
}

#[test]
fn hosts_are_conditions_in_uri_mode() {
    for mode in [Mode::Uri, Mode::UriWithParameter] {
        let routes = ["any /a", "exact /* foo.com", "star /* *.foo.com,bar.com"];
        check(
            mode,
            &routes,
            &[
                ("GET foo.com/a", "any"),
                ("GET foo.com/b", "exact"),
                ("GET x.y.foo.com/b", "star"),
                ("GET bar.com/b", "star"),
                ("GET x.bar.com/b", "-"),
            ],
        );
    }
}

#[test]
fn hosts_with_a_port_are_compared_with_the_header() {
    for mode in [Mode::Uri, Mode::HostUri] {
        let routes = [
            "port /a foo.com:81,*.foo.com:82",
            "v6 /a [::1]",
            "v6port /b [::1]:80",
        ];
        check(
            mode,
            &routes,
            &[
                ("GET foo.com:81/a", "port"),
                ("GET FOO.com:81/a", "port"),
                ("GET foo.com/a", "-"),
                ("GET foo.com:82/a", "-"),
                ("GET b.foo.com:82/a", "port"),
                ("GET [::1]/a", "v6"),
                ("GET [::1]:80/a", "v6"),
                ("GET [::1]:80/b", "v6port"),
                ("GET [::1]:81/b", "-"),
            ],
        );
    }
    check(
        Mode::HostUri,
        &["plain /a foo.com", "port /* foo.com:81"],
        &[("GET foo.com:81/a", "port"), ("GET foo.com:80/a", "plain")],
    );
}
