package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"github.com/holdfast-dev/holdfast/advisory"
	advisoriespb "github.com/holdfast-dev/holdfast/gen/advisories/v1"
	"github.com/holdfast-dev/holdfast/page"
	"github.com/holdfast-dev/holdfast/resource"
	"github.com/holdfast-dev/holdfast/store"
)

// advisoryPages compares first pages, alone and with each filter, in both orders.
func advisoryPages(ctx context.Context, few, many office, r *report) error {
	some, err := few.lists.Advisories(ctx, store.Reach{Under: []resource.UID{few.org}}, resource.AdvisoryFilter{}, page.Request{Size: 50, Order: page.Order{Field: "uid"}}, true)
	if err != nil {
		return err
	}
	one := some.Items[len(some.Items)/2]
	for _, a := range some.Items {
		if len(a.Aliases) > 0 && len(a.Affected) > 0 {
			one = a
		}
	}
	filters := []struct {
		name string
		resource.AdvisoryFilter
	}{
		{"alone", resource.AdvisoryFilter{}},
		{"advisory_ids", resource.AdvisoryFilter{IDs: []string{one.ID}}},
		{"legacy_advisory_ids", resource.AdvisoryFilter{LegacyIDs: []string{"OLD-" + one.ID}}},
		{"artifact_names", resource.AdvisoryFilter{ArtifactNames: []string{"stdlib"}}},
		{"artifact_types", resource.AdvisoryFilter{ArtifactTypes: []string{one.ArtifactType}}},
		{"artifact_architectures", resource.AdvisoryFilter{ArtifactArchitectures: []string{"x86_64"}}},
		{"component_names", resource.AdvisoryFilter{ComponentNames: []string{"part8"}}},
		{"component_types", resource.AdvisoryFilter{ComponentTypes: []string{"go-module"}}},
		{"component_locations", resource.AdvisoryFilter{ComponentLocations: []string{"/usr/bin/part8"}}},
		{"aliases", resource.AdvisoryFilter{Aliases: one.Aliases[:min(1, len(one.Aliases))]}},
		{"event_review_states", resource.AdvisoryFilter{ReviewStates: []resource.ReviewState{resource.ReviewPending}}},
		{"event_authors", resource.AdvisoryFilter{EventAuthors: []string{"author3"}}},
		{"exclude_event_authors", resource.AdvisoryFilter{NotEventAuthors: []string{"author3"}}},
		{"event_reviewers", resource.AdvisoryFilter{EventReviewers: []string{"reviewer1"}}},
		{"event_types", resource.AdvisoryFilter{EventTypes: []resource.AdvisoryEventType{resource.EventFixed}}},
		{"latest_event_type", resource.AdvisoryFilter{LatestEventType: resource.EventDetection}},
	}
	for _, f := range filters {
		for _, o := range []page.Order{{Field: "uid"}, {Field: "update_time", Desc: true}} {
			read := func(from office) func(context.Context, int) error {
				return func(ctx context.Context, _ int) error {
					_, err := from.lists.Advisories(ctx, store.Reach{Under: []resource.UID{from.org}}, f.AdvisoryFilter, page.Request{Size: 50, Order: o}, false)
					return err
				}
			}
			p, err := alternate(ctx, read(many), read(few))
			if err != nil {
				return err
			}
			r.slower("advisories: page by "+o.Field+", "+f.name, p, 2)
		}
	}
	return nil
}

// freeText times queries: of nearly all advisories, of some, of one and of none.
func freeText(ctx context.Context, o office, r *report) error {
	for _, text := range []string{"cve", "stdlib", "2026-1", "nothing like it"} {
		for _, order := range []page.Order{{Field: "uid"}, {Field: "update_time", Desc: true}} {
			var took []time.Duration
			var total int64
			for range 12 {
				begin := time.Now()
				p, err := o.lists.Advisories(ctx, store.Reach{Under: []resource.UID{o.org}}, resource.AdvisoryFilter{Query: text}, page.Request{Size: 50, Order: order}, false)
				if err != nil {
					return err
				}
				took, total = append(took, time.Since(begin)), p.Total
			}
			r.under(fmt.Sprintf("advisories: query %q by %s (%d found)", text, order.Field, total), median(took[2:]).Seconds(), freeTextTarget, seconds)
		}
	}
	return nil
}

// versionQueries asks about versions of packages that have advisories.
func versionQueries(ctx context.Context, o office, r *report) error {
	var names []string
	p := page.Request{Size: page.MaxSize, Order: page.Order{Field: "uid"}}
	for i := range 20 {
		p.Skip = i * o.rows / 20 * 9 / 10
		got, err := o.lists.Advisories(ctx, store.Reach{Under: []resource.UID{o.org}}, resource.AdvisoryFilter{}, p, false)
		if err != nil {
			return err
		}
		for _, a := range got.Items {
			names = append(names, a.ArtifactName)
		}
	}
	ask := func(_ context.Context, _ int) error {
		_, err := o.Query(o.ctx, resource.PlaceFilter{}, advisory.Package{Ecosystem: "Go", Name: names[rand.IntN(len(names))], Version: "1.20.0"})
		return err
	}
	var rates []float64
	for range rounds + 1 {
		rate, _, err := crowd(ctx, roundTime, ask)
		if err != nil {
			return err
		}
		rates = append(rates, rate)
	}
	r.over("advisories: questions about a version, a second", median(rates[1:]), queryTarget)
	return nil
}

// importInServer has the program itself import as many records as the big
// dataset of groups has, over its API, and reports its memory.
func importInServer(ctx context.Context, b *bench, r *report) (err error) {
	binary, err := b.build(ctx, ".", program)
	if err != nil {
		return err
	}
	folder, err := b.dataFolder()
	if err != nil {
		return err
	}
	addr, err := freeAddress(ctx)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, binary, "--dev", "--data-dir", folder, "--listen", addr)
	if err := cmd.Start(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cmd.Process.Kill()); _ = cmd.Wait() }() // killed: an error is certain
	if err := awaitReady(ctx, "http://"+addr+"/readyz"); err != nil {
		return err
	}
	path, err := b.archive(b.rows)
	if err != nil {
		return err
	}
	begin := time.Now()
	created, err := sendArchive(ctx, addr, filepath.Join(folder, "dev.json"), path)
	if err != nil {
		return err
	}
	if created != int64(b.rows) {
		return fmt.Errorf("the server has taken %d of %d records", created, b.rows)
	}
	r.over("advisories: import over the API, records a second", float64(b.rows)/time.Since(begin).Seconds(), 0)
	peak, err := highWater(cmd.Process.Pid)
	if err != nil {
		return err
	}
	r.under(fmt.Sprintf("advisories: most memory of a server importing %d", b.rows), peak, importMemory, megabytes)
	return nil
}

// highWater is the most memory a process has had.
func highWater(pid int) (float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.SplitSeq(string(text), "\n") {
		var kilobytes float64
		if n, _ := fmt.Sscanf(line, "VmHWM: %f kB", &kilobytes); n == 1 {
			return kilobytes * 1024, nil
		}
	}
	return 0, errors.New("the system does not say how much memory a process has had")
}

// sendArchive imports a file as a client does, and returns how many advisories
// there were in it.
func sendArchive(ctx context.Context, addr, devFile, path string) (created int64, err error) {
	text, err := os.ReadFile(devFile)
	if err != nil {
		return 0, err
	}
	var dev struct{ Token, OrganizationUID string }
	if err := json.Unmarshal(text, &dev); err != nil {
		return 0, err
	}
	conn, err := grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	stream, err := advisoriespb.NewAdvisoryWritingServiceClient(conn).ImportAdvisories(metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+dev.Token))
	if err != nil {
		return 0, err
	}
	sent := make(chan error, 1)
	go func() { sent <- sendFile(stream, dev.OrganizationUID, path) }()
	for {
		m, err := stream.Recv()
		if err != nil {
			if err := <-sent; err != nil {
				return 0, err
			}
			if !errors.Is(err, io.EOF) {
				return created, err
			}
			return created, nil
		}
		created = m.GetCounts().GetCreated()
	}
}

// sendFile sends one document, in pieces.
func sendFile(stream advisoriespb.AdvisoryWritingService_ImportAdvisoriesClient, group, path string) (err error) {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if err := stream.Send(&advisoriespb.ImportAdvisoriesRequest{Part: &advisoriespb.ImportAdvisoriesRequest_Parent{Parent: group}}); err != nil {
		return err
	}
	if err := stream.Send(&advisoriespb.ImportAdvisoriesRequest{Part: &advisoriespb.ImportAdvisoriesRequest_Document_{
		Document: &advisoriespb.ImportAdvisoriesRequest_Document{Name: filepath.Base(path), Size: info.Size()},
	}}); err != nil {
		return err
	}
	buf := make([]byte, 1<<20)
	for {
		n, err := f.Read(buf)
		if n > 0 {
			if err := stream.Send(&advisoriespb.ImportAdvisoriesRequest{Part: &advisoriespb.ImportAdvisoriesRequest_Data{Data: buf[:n]}}); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return stream.CloseSend()
		}
		if err != nil {
			return err
		}
	}
}
