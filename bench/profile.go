package main

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"maps"
	"runtime/pprof"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
)

// A profile is the processor time of each stack, by the names of its functions, innermost
// first.
type profile []stack

type stack struct {
	frames []string
	nanos  int64
}

// profiled runs f and returns the profile of this process meanwhile.
func profiled(f func() error) (profile, error) {
	var buf bytes.Buffer
	if err := pprof.StartCPUProfile(&buf); err != nil {
		return nil, err
	}
	err := f()
	pprof.StopCPUProfile()
	if err != nil {
		return nil, err
	}
	z, err := gzip.NewReader(&buf)
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(z)
	if err != nil {
		return nil, err
	}
	return readProfile(b)
}

// share returns the share of the time in functions whose name contains function, and in
// what they call.
func (p profile) share(function string) float64 {
	var in, all int64
	for _, s := range p {
		all += s.nanos
		if slices.ContainsFunc(s.frames, func(f string) bool { return strings.Contains(f, function) }) {
			in += s.nanos
		}
	}
	return float64(in) / float64(max(all, 1))
}

// parts are what time is attributed to. The innermost function that matches decides, and
// for that the first part.
var parts = []struct{ name, functions string }{
	{"garbage collection", "runtime.gcBgMarkWorker runtime.gcAssistAlloc runtime.bgsweep runtime.gcStart"},
	{"waiting for the disk", "libc.Xfsync libc.Xfdatasync"},
	{"SQLite", "modernc.org/"},
	{"PostgreSQL's driver", "github.com/jackc/"},
	{"database/sql", "database/sql."},
	{"JSON", "encoding/json. protobuf/encoding/protojson holdfast/api.(*encoder) holdfast/api.appendMessage"},
	{"logging", "log/slog"},
	{"HTTP client", "net/http.(*Transport) net/http.(*persistConn) net/http.(*Client)"},
	{"HTTP server", "net/http."},
	{"gRPC client", "grpc.(*clientStream) grpc.(*ClientConn) transport.(*http2Client) transport.newHTTP2Client"},
	{"gRPC", "google.golang.org/grpc"},
	{"gateway", "grpc-ecosystem/grpc-gateway"},
	{"protobuf", "google.golang.org/protobuf"},
	{"api", "holdfast/api."},
	{"authz", "holdfast/authz."},
	{"token", "holdfast/token."},
	{"store", "holdfast/store."},
	{"iam", "holdfast/iam. holdfast/resource. holdfast/page."},
	{"server", "holdfast/server."},
	{"this program", "main."},
}

// part returns what the time of a stack is attributed to.
func part(frames []string) string {
	for _, f := range frames {
		for _, p := range parts {
			for name := range strings.FieldsSeq(p.functions) {
				if strings.Contains(f, name) {
					return p.name
				}
			}
		}
	}
	return "scheduler"
}

// parts returns a text with the shares of the parts, largest first.
func (p profile) parts() string {
	by, all := map[string]int64{}, int64(0)
	for _, s := range p {
		by[part(s.frames)] += s.nanos
		all += s.nanos
	}
	names := slices.SortedFunc(maps.Keys(by), func(a, b string) int {
		return cmp.Or(cmp.Compare(by[b], by[a]), cmp.Compare(a, b))
	})
	var text []string
	for _, name := range names {
		if share := float64(by[name]) / float64(all); share >= 0.005 {
			text = append(text, fmt.Sprintf("%s %.0f %%", name, 100*share))
		}
	}
	return strings.Join(text, ", ")
}

// The numbers of the fields in pprof's profile.proto.
const (
	profileSample, profileLocation, profileFunction, profileStrings = 2, 4, 5, 6
	sampleLocations, sampleValues                                   = 1, 2
	locationID, locationLine, lineFunction                          = 1, 4, 1
	functionID, functionName                                        = 1, 2
)

var errProfile = errors.New("the profile cannot be read")

// A field is a number or bytes.
type field struct {
	num protowire.Number
	n   uint64
	b   []byte
}

// fields parses a message.
func fields(b []byte) (all []field, _ error) {
	for len(b) > 0 {
		num, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return nil, errProfile
		}
		b = b[n:]
		f := field{num: num}
		switch kind {
		case protowire.VarintType:
			f.n, n = protowire.ConsumeVarint(b)
		case protowire.BytesType:
			f.b, n = protowire.ConsumeBytes(b)
		default:
			n = protowire.ConsumeFieldValue(num, kind, b)
		}
		if n < 0 {
			return nil, errProfile
		}
		b = b[n:]
		all = append(all, f)
	}
	return all, nil
}

// numbers parses a repeated number, packed or not.
func (f field) numbers() (all []uint64) {
	if f.b == nil {
		return []uint64{f.n}
	}
	for b := f.b; len(b) > 0; {
		v, n := protowire.ConsumeVarint(b)
		if n < 0 {
			return all
		}
		all, b = append(all, v), b[n:]
	}
	return all
}

// readProfile parses a profile of pprof.
func readProfile(b []byte) (profile, error) {
	top, err := fields(b)
	if err != nil {
		return nil, err
	}
	names, err := locationNames(top)
	if err != nil {
		return nil, err
	}
	var p profile
	for _, f := range top {
		if f.num != profileSample {
			continue
		}
		sample, err := fields(f.b)
		if err != nil {
			return nil, err
		}
		var s stack
		var values []uint64 // count and nanoseconds
		for _, f := range sample {
			switch f.num {
			case sampleLocations:
				for _, id := range f.numbers() {
					s.frames = append(s.frames, names[id]...)
				}
			case sampleValues:
				values = append(values, f.numbers()...)
			}
		}
		if len(values) != 2 {
			return nil, errProfile
		}
		s.nanos = int64(values[1])
		p = append(p, s)
	}
	return p, nil
}

// locationNames returns the functions of each location, inlined ones first.
func locationNames(top []field) (map[uint64][]string, error) {
	var texts []string
	functions, locations := map[uint64]uint64{}, map[uint64][]uint64{} // id → index in texts; id → functions
	for _, f := range top {
		if f.num == profileStrings {
			texts = append(texts, string(f.b))
		}
		if f.num != profileFunction && f.num != profileLocation {
			continue
		}
		inner, err := fields(f.b)
		if err != nil {
			return nil, err
		}
		if f.num == profileFunction {
			functions[first(inner, functionID)] = first(inner, functionName)
		} else {
			locations[first(inner, locationID)] = linesOf(inner)
		}
	}
	names := map[uint64][]string{}
	for id, lines := range locations {
		for _, function := range lines {
			if n := functions[function]; n < uint64(len(texts)) {
				names[id] = append(names[id], texts[n])
			}
		}
	}
	return names, nil
}

func first(all []field, num protowire.Number) uint64 {
	for _, f := range all {
		if f.num == num {
			return f.n
		}
	}
	return 0
}

// linesOf returns the functions of a location, inlined ones first.
func linesOf(location []field) (all []uint64) {
	for _, f := range location {
		if f.num != locationLine {
			continue
		}
		if line, err := fields(f.b); err == nil {
			all = append(all, first(line, lineFunction))
		}
	}
	return all
}
