package rig

import (
	advisoriespb "github.com/holdfast-dev/holdfast/gen/advisories/v1"

	"archive/zip"
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// Archive writes a zip file with n OSV records and returns its path. The records are copies of the records in the
// file that the flag -osv names, or copies of ownRecord. If the zip file exists already, it is used again.
func (b *Bench) Archive(n int) (path string) {
	path = filepath.Join(b.Folder, fmt.Sprintf("osv-%d.zip", n))
	if _, err := os.Stat(path); err == nil {
		return path
	}
	real := b.Records()
	f := Must(os.Create(path))
	buffered := bufio.NewWriterSize(f, 1<<20)
	z := zip.NewWriter(buffered)
	for i := range n {
		id, text := CopyRecord(real[i%len(real)], i/len(real))
		Must(Must(z.Create(id + ".json")).Write(text))
	}
	Check(errors.Join(z.Close(), buffered.Flush(), f.Close()))
	return path
}

// CopyRecord returns the ID and the text of the k-th copy of a record. A copy has other IDs. It also has other
// package names, except in every hundredth copy. If all copies had the same packages, a package would have a hundred
// times as many advisories in a dataset of a million as in a dataset of ten thousand.
func CopyRecord(r map[string]any, k int) (id string, text []byte) {
	copied := maps.Clone(r)
	suffix := "-" + strconv.Itoa(k)
	id = fmt.Sprint(r["id"]) + suffix
	copied["id"] = id
	var aliases []string
	listed, _ := r["aliases"].([]any)
	for _, a := range listed {
		aliases = append(aliases, fmt.Sprint(a)+suffix)
	}
	copied["aliases"] = aliases
	if k%100 != 0 {
		copied["affected"] = renamed(r["affected"], suffix)
	}
	return id, Must(json.Marshal(copied))
}

// renamed returns the affected packages of a record. The names have the suffix added to them.
func renamed(affected any, suffix string) []any {
	var out []any
	entries, _ := affected.([]any)
	for _, v := range entries {
		entry, _ := v.(map[string]any)
		copied := maps.Clone(entry)
		p, _ := entry["package"].(map[string]any)
		copied["package"] = map[string]any{"ecosystem": p["ecosystem"], "name": fmt.Sprint(p["name"]) + suffix}
		out = append(out, copied)
	}
	return out
}

// Records returns the records in the file that the flag -osv names. Without the flag it returns only ownRecord.
func (b *Bench) Records() (records []map[string]any) {
	if b.OSV == "" {
		var one map[string]any
		Check(json.Unmarshal([]byte(ownRecord), &one))
		return []map[string]any{one}
	}
	z := Must(zip.OpenReader(b.OSV))
	for _, f := range z.File {
		if !strings.HasSuffix(f.Name, ".json") {
			continue
		}
		r := Must(f.Open())
		var one map[string]any
		if err := errors.Join(json.NewDecoder(r).Decode(&one), r.Close()); err != nil {
			Check(fmt.Errorf("%s: %w", f.Name, err))
		}
		records = append(records, one)
	}
	Check(z.Close())
	return records
}

// ownRecord is the record that is copied if the flag -osv is not set. It is about as long as a real record.
const ownRecord = `{"schema_version":"1.3.1","id":"BENCH-1","modified":"2026-01-02T03:04:05Z",` +
	`"published":"2026-01-01T00:00:00Z",
"aliases":["CVE-2026-10000","GHSA-2345-6789-cfgh"],"summary":"Reads past the end of what it was given",
"details":"A request that is shorter than it says makes the reader return what was in memory before it. ` +
	`Nothing is written, but what is read may be somebody else's.",
"affected":[{"package":{"name":"stdlib","ecosystem":"Go"},` +
	`"ranges":[{"type":"SEMVER","events":[{"introduced":"0"},{"fixed":"1.20.3"},` +
	`{"introduced":"1.21.0-0"},{"fixed":"1.21.1"}]}]}],
"references":[{"type":"FIX","url":"https://code.example/change/1234"},` +
	`{"type":"WEB","url":"https://talk.example/thread/5678"}]}`

// SendArchive imports a file over gRPC and returns the number of created advisories.
func SendArchive(ctx context.Context, conn *grpc.ClientConn, dev DevInfo, path string) (created int64) {
	ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+dev.Token)
	stream := Must(advisoriespb.NewAdvisoryWritingServiceClient(conn).ImportAdvisories(ctx))
	f, size := OpenSized(path)
	sent := make(chan error, 1)
	go func() { sent <- sendFile(stream, string(dev.Organization), f, size) }()
	for {
		m, err := stream.Recv()
		if err != nil {
			Check(<-sent)
			if !errors.Is(err, io.EOF) {
				Check(err)
			}
			Check(f.Close())
			return created
		}
		created = m.GetCounts().GetCreated()
	}
}

// OpenSized opens a file and returns its size.
func OpenSized(path string) (*os.File, int64) {
	f := Must(os.Open(path))
	return f, Must(f.Stat()).Size()
}

// sendFile sends one file in chunks over the stream.
func sendFile(
	stream advisoriespb.AdvisoryWritingService_ImportAdvisoriesClient, group string, f *os.File, size int64,
) error {
	type request = advisoriespb.ImportAdvisoriesRequest
	document := &advisoriespb.ImportAdvisoriesRequest_Document{Name: filepath.Base(f.Name()), Size: size}
	err := errors.Join(
		stream.Send(&request{Part: &advisoriespb.ImportAdvisoriesRequest_Parent{Parent: group}}),
		stream.Send(&request{Part: &advisoriespb.ImportAdvisoriesRequest_Document_{Document: document}}))
	for buf := make([]byte, 1<<20); err == nil; {
		var n int
		if n, err = f.Read(buf); n > 0 {
			err = stream.Send(&request{Part: &advisoriespb.ImportAdvisoriesRequest_Data{Data: buf[:n]}})
		}
	}
	if errors.Is(err, io.EOF) {
		err = stream.CloseSend()
	}
	return err
}
