package config

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// UIDs are UIDs of identities, separated by commas in settings.
type UIDs []resource.UID

// UnmarshalText implements encoding.TextUnmarshaler.
func (u *UIDs) UnmarshalText(text []byte) error {
	var all UIDs
	for part := range strings.SplitSeq(string(text), ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		uid, err := resource.ParseUID("operators", part)
		if err != nil {
			return fmt.Errorf("%q is not a UID", part)
		}
		all = append(all, uid)
	}
	*u = all
	return nil
}

// A Size is a number of bytes. Settings may give it a unit: 4MiB, 512KiB, 1000.
type Size int64

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *Size) UnmarshalText(text []byte) error {
	digits, unit := string(text), int64(1)
	for suffix, bytes := range map[string]int64{"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30} {
		if rest, ok := strings.CutSuffix(digits, suffix); ok {
			digits, unit = strings.TrimSpace(rest), bytes
			break
		}
	}
	n, err := strconv.ParseInt(digits, 10, 32)
	if err != nil {
		return fmt.Errorf("%q is not a size like 4MiB or 512KiB", text)
	}
	*s = Size(n * unit)
	return nil
}

// String returns the size for people, such as 1.5 MiB.
func (s Size) String() string {
	units := []string{"bytes", "KiB", "MiB", "GiB", "TiB"}
	f, i := float64(s), 0
	for ; f >= 1024 && i < len(units)-1; i++ {
		f /= 1024
	}
	if i == 0 {
		return fmt.Sprintf("%d %s", int64(s), units[i])
	}
	return fmt.Sprintf("%.1f %s", f, units[i])
}

// Prefixes are address ranges, separated by commas in settings.
type Prefixes []netip.Prefix

// UnmarshalText implements encoding.TextUnmarshaler. It accepts a single address as
// a range of one.
func (p *Prefixes) UnmarshalText(text []byte) error {
	var all Prefixes
	for part := range strings.SplitSeq(string(text), ",") {
		part = strings.TrimSpace(part)
		prefix, err := netip.ParsePrefix(part)
		if addr, aerr := netip.ParseAddr(part); err != nil && aerr == nil {
			prefix, err = netip.PrefixFrom(addr, addr.BitLen()), nil
		}
		if err != nil {
			return fmt.Errorf("%q is not an address range like 10.0.0.0/8", part)
		}
		all = append(all, prefix.Masked())
	}
	*p = all
	return nil
}

// Folders are paths, separated by commas in settings.
type Folders []string

// UnmarshalText implements encoding.TextUnmarshaler.
func (f *Folders) UnmarshalText(text []byte) error {
	var all Folders
	for part := range strings.SplitSeq(string(text), ",") {
		path := strings.TrimSpace(part)
		if !filepath.IsAbs(path) {
			return fmt.Errorf("%q is not an absolute path", path)
		}
		all = append(all, filepath.Clean(path))
	}
	*f = all
	return nil
}

// Origins are the origins of web pages, as browsers spell them.
type Origins []string

// UnmarshalText implements encoding.TextUnmarshaler.
func (o *Origins) UnmarshalText(text []byte) error {
	var all Origins
	for part := range strings.SplitSeq(string(text), ",") {
		origin := strings.TrimSpace(part)
		if err := checkOrigin(origin); err != nil {
			return fmt.Errorf("%q %w", origin, err)
		}
		all = append(all, origin)
	}
	*o = all
	return nil
}

// checkOrigin returns an error unless a browser can send the origin and an attacker
// on the network cannot impersonate it.
func checkOrigin(origin string) error {
	u, err := url.Parse(origin)
	if err != nil || u.Host == "" || strings.Contains(origin, "*") {
		return errors.New("is not an origin like https://console.example.com; name each origin in full")
	}
	port := u.Port()
	if origin != u.Scheme+"://"+strings.ToLower(u.Host) || strings.HasSuffix(u.Host, ":") ||
		u.Scheme == "https" && port == "443" || u.Scheme == "http" && port == "80" {
		return errors.New("is not what browsers send: scheme, host and port in lower case, " +
			"without a path and without the default port of the scheme")
	}
	if u.Scheme != "https" && !(u.Scheme == "http" && isLocalHost(u.Hostname())) {
		return errors.New("must be https, or http on this machine")
	}
	return nil
}
