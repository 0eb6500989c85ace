package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	advisoriespb "github.com/holdfast-dev/holdfast/gen/advisories/v1"
	"github.com/holdfast-dev/holdfast/internal/core/page"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
	"github.com/holdfast-dev/holdfast/internal/store"
	"github.com/holdfast-dev/holdfast/internal/vuln"
	"github.com/holdfast-dev/holdfast/internal/vuln/advisory"
)

// The orders of pages of advisories.
var advisoryOrders = []page.Order{{Field: "uid"}, {Field: "update_time", Desc: true}}

// list reads a page of advisories, with their details or without.
func (s advisoryStore) list(
	ctx context.Context, f vuln.AdvisoryFilter, p page.Request, details bool,
) (page.Page[vuln.Advisory], error) {
	return s.lists.Advisories(ctx, store.Reach{Under: []resource.UID{s.org}}, f, p, details)
}

// advisoryPages compares first pages, alone and with each filter, in both orders.
func (m *measurement) advisoryPages(ctx context.Context, few, many advisoryStore) {
	some := must(few.list(ctx, vuln.AdvisoryFilter{}, page.Request{Size: 50, Order: advisoryOrders[0]}, true))
	one := some.Items[len(some.Items)/2]
	for _, a := range some.Items {
		if len(a.Aliases) > 0 && len(a.Affected) > 0 {
			one = a
		}
	}
	filters := []struct {
		name string
		vuln.AdvisoryFilter
	}{
		{"alone", vuln.AdvisoryFilter{}},
		{"advisory_ids", vuln.AdvisoryFilter{IDs: []string{one.ID}}},
		{"legacy_advisory_ids", vuln.AdvisoryFilter{LegacyIDs: []string{"OLD-" + one.ID}}},
		{"artifact_names", vuln.AdvisoryFilter{ArtifactNames: []string{"stdlib"}}},
		{"artifact_types", vuln.AdvisoryFilter{ArtifactTypes: []string{one.ArtifactType}}},
		{"artifact_architectures", vuln.AdvisoryFilter{ArtifactArchitectures: []string{"x86_64"}}},
		{"component_names", vuln.AdvisoryFilter{ComponentNames: []string{"part8"}}},
		{"component_types", vuln.AdvisoryFilter{ComponentTypes: []string{"go-module"}}},
		{"component_locations", vuln.AdvisoryFilter{ComponentLocations: []string{"/usr/bin/part8"}}},
		{"aliases", vuln.AdvisoryFilter{Aliases: one.Aliases[:min(1, len(one.Aliases))]}},
		{"event_review_states", vuln.AdvisoryFilter{ReviewStates: []vuln.ReviewState{vuln.ReviewPending}}},
		{"event_authors", vuln.AdvisoryFilter{EventAuthors: []string{"author3"}}},
		{"exclude_event_authors", vuln.AdvisoryFilter{NotEventAuthors: []string{"author3"}}},
		{"event_reviewers", vuln.AdvisoryFilter{EventReviewers: []string{"reviewer1"}}},
		{"event_types", vuln.AdvisoryFilter{EventTypes: []vuln.AdvisoryEventType{vuln.EventFixed}}},
		{"latest_event_type", vuln.AdvisoryFilter{LatestEventType: vuln.EventDetection}},
	}
	for _, f := range filters {
		for _, o := range advisoryOrders {
			read := func(from advisoryStore) operation {
				return func(ctx context.Context, _ int) error {
					_, err := from.list(ctx, f.AdvisoryFilter, page.Request{Size: 50, Order: o}, false)
					return err
				}
			}
			m.slower("advisories: page by "+o.Field+", "+f.name, alternate(ctx, read(many), read(few)), 2)
		}
	}
}

// freeText measures queries that match nearly all advisories, some, one, and none.
func (m *measurement) freeText(ctx context.Context, o advisoryStore) {
	for _, text := range []string{"cve", "stdlib", "2026-1", "nothing like it"} {
		for _, order := range advisoryOrders {
			var took []time.Duration
			var total int64
			for range 12 {
				begin := time.Now()
				p := page.Request{Size: 50, Order: order}
				total = must(o.list(ctx, vuln.AdvisoryFilter{Query: text}, p, false)).Total
				took = append(took, time.Since(begin))
			}
			what := fmt.Sprintf("advisories: query %q by %s (%d found)", text, order.Field, total)
			m.under(what, median(took[2:]).Seconds(), freeTextTarget, seconds)
		}
	}
}

// versionQueries measures queries about versions of packages with advisories.
func (m *measurement) versionQueries(ctx context.Context, o advisoryStore) {
	var names []string
	p := page.Request{Size: page.MaxSize, Order: page.Order{Field: "uid"}}
	for i := range 20 {
		p.Skip = i * o.rows / 20 * 9 / 10
		for _, a := range must(o.list(ctx, vuln.AdvisoryFilter{}, p, false)).Items {
			names = append(names, a.ArtifactName)
		}
	}
	ask := func(context.Context, int) error {
		p := advisory.Package{Ecosystem: "Go", Name: random(names), Version: "1.20.0"}
		_, err := o.Query(o.ctx, resource.UIDFilter{}, p)
		return err
	}
	var rates []float64
	for range rounds + 1 {
		rate, _ := rateOf(ctx, roundTime, ask)
		rates = append(rates, rate)
	}
	m.over("advisories: questions about a version, a second", median(rates[1:]), queryTarget)
}

// importInServer imports records over the API of a server in a process of its own, and reports
// the memory of the server.
func (m *measurement) importInServer(ctx context.Context) {
	p := m.holdfastd(ctx, "", "")
	rows := m.bench.rows
	path := m.archive(rows)
	begin := time.Now()
	created := sendArchive(ctx, m.dial(p.address), p.dev, path)
	if created != int64(rows) {
		check(fmt.Errorf("the server has taken %d of %d records", created, rows))
	}
	m.over("advisories: import over the API, records a second", float64(rows)/time.Since(begin).Seconds(), 0)
	m.under(fmt.Sprintf("advisories: most memory of a server importing %d", rows), p.memory("VmHWM"), importMemory,
		megabytes)
}

// sendArchive imports a file over gRPC, and returns how many advisories were created.
func sendArchive(ctx context.Context, conn *grpc.ClientConn, dev devInfo, path string) (created int64) {
	ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+dev.Token)
	stream := must(advisoriespb.NewAdvisoryWritingServiceClient(conn).ImportAdvisories(ctx))
	f, size := openSized(path)
	sent := make(chan error, 1)
	go func() { sent <- sendFile(stream, string(dev.Organization), f, size) }()
	for {
		m, err := stream.Recv()
		if err != nil {
			check(<-sent)
			if !errors.Is(err, io.EOF) {
				check(err)
			}
			check(f.Close())
			return created
		}
		created = m.GetCounts().GetCreated()
	}
}

// openSized opens a file and returns its size.
func openSized(path string) (*os.File, int64) {
	f := must(os.Open(path))
	return f, must(f.Stat()).Size()
}

// sendFile sends one document in chunks.
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
