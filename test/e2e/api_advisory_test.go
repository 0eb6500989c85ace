package e2e_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	advisoriespb "github.com/holdfast-dev/holdfast/gen/advisories/v1"
	commonpb "github.com/holdfast-dev/holdfast/gen/common"
	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
	vulnpb "github.com/holdfast-dev/holdfast/gen/vulnerabilities/v2beta1"
)

// theAdvisory returns an advisory about a package for which there is a fix.
func theAdvisory() *vulnpb.Advisory {
	return &vulnpb.Advisory{
		Author:       "ann",
		ArtifactName: "openssl",
		ArtifactType: "apk",
		Aliases:      []string{"CVE-2026-1"},
		Summary:      "Ünï ✓ <b>&",
		Severities: []*vulnpb.Severity{
			{Type: vulnpb.Severity_TYPE_CVSS_V3, Score: "CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:H/I:H/A:H"},
		},
		References: []*vulnpb.Reference{{Type: "WEB", Url: "https://openssl.example"}},
		Affected: []*vulnpb.Affected{{
			Ecosystem: "Alpine:v3.20",
			Name:      "openssl",
			Ranges: []*vulnpb.AffectedRange{{
				Type: "ECOSYSTEM",
				Events: []*vulnpb.RangeEvent{
					{At: &vulnpb.RangeEvent_Introduced{Introduced: "0"}}, {At: &vulnpb.RangeEvent_Fixed{Fixed: "3.3.2-r1"}},
				},
			}},
		}},
	}
}

func fixedIn(version string) *vulnpb.AdvisoryEvent {
	return &vulnpb.AdvisoryEvent{
		Type: &vulnpb.AdvisoryEvent_Fixed_{Fixed: &vulnpb.AdvisoryEvent_Fixed{FixedVersion: version, Note: "rebuilt"}},
	}
}

func theFeed(name string) *advisoriespb.AdvisoryFeed {
	return &advisoriespb.AdvisoryFeed{
		Name: name, Address: "https://feeds.example/all.zip", Interval: durationpb.New(time.Hour), Paused: true,
	}
}

// advise creates an advisory as the owner and returns its UID.
func (w *world) advise(t *testing.T, group string, a *vulnpb.Advisory) string {
	t.Helper()
	return must[*vulnpb.Advisory](t, w.overGRPC, w.Token, &advisoriespb.CreateAdvisoryRequest{
		Parent: group, Advisory: a,
	}).GetUid()
}

// advisorySteps returns the steps of TestApiBothProtocols that are about advisories, their events and their feeds.
func advisorySteps() []step {
	list := func(r *vulnpb.ListAdvisoriesRequest) func(*story) proto.Message {
		return func(*story) proto.Message { return r }
	}
	review := func(state vulnpb.ReviewState) func(*story) proto.Message {
		return func(s *story) proto.Message {
			return &advisoriespb.UpdateAdvisoryEventRequest{
				Event:      &vulnpb.AdvisoryEvent{Uid: s.uid("event"), ReviewState: state, Reviewer: "eve"},
				UpdateMask: mask("review_state", "reviewer"),
			}
		}
	}
	ask := func(p *advisoriespb.PackageVersion) func(*story) proto.Message {
		return func(*story) proto.Message { return &advisoriespb.QueryAdvisoriesRequest{Package: p} }
	}
	old := &advisoriespb.PackageVersion{Ecosystem: "Alpine:v3.20", Name: "openssl", Version: "3.3.1-r0"}
	return slices.Concat([]step{
		{name: "advisory", in: func(s *story) proto.Message {
			return &advisoriespb.CreateAdvisoryRequest{
				Parent: s.uid("folder"), Advisory: theAdvisory(), AdvisoryId: "ACME-2026-1",
			}
		}},
		{name: "advisory of the same id", code: codes.AlreadyExists, in: func(s *story) proto.Message {
			return &advisoriespb.CreateAdvisoryRequest{
				Parent: s.uid("folder"), Advisory: theAdvisory(), AdvisoryId: "ACME-2026-1",
			}
		}},
		{name: "advisory only tried", in: func(s *story) proto.Message {
			return &advisoriespb.CreateAdvisoryRequest{
				Parent: s.org(), Advisory: theAdvisory(), AdvisoryId: "ACME-2026-2", ValidateOnly: true,
			}
		}},
		{name: "get advisory", in: func(s *story) proto.Message {
			return &vulnpb.GetAdvisoryRequest{Uid: s.uid("advisory")}
		}},
		{name: "update advisory", in: func(s *story) proto.Message {
			return &advisoriespb.UpdateAdvisoryRequest{
				Advisory: &vulnpb.Advisory{Uid: s.uid("advisory"), Details: "More\nof it."},
			}
		}},
		{name: "event", in: func(s *story) proto.Message {
			return &advisoriespb.CreateAdvisoryEventRequest{Parent: s.uid("advisory"), Event: fixedIn("3.3.2-r1")}
		}},
		{name: "ask for changes", in: review(vulnpb.ReviewState_REVIEW_STATE_REQUEST_CHANGES)},
		{name: "pending again", in: review(vulnpb.ReviewState_REVIEW_STATE_PENDING)},
		{name: "approve", in: review(vulnpb.ReviewState_REVIEW_STATE_APPROVED)},
		{
			name: "reject what is approved",
			code: codes.FailedPrecondition,
			in:   review(vulnpb.ReviewState_REVIEW_STATE_REJECTED),
		},
		{name: "list advisories", in: list(&vulnpb.ListAdvisoriesRequest{OrderBy: "updated_at desc"})},
		{name: "list advisories by everything", in: list(&vulnpb.ListAdvisoriesRequest{
			AdvisoryIds:         []string{"ACME-2026-1"},
			ArtifactNames:       []string{"x", "openssl"},
			ArtifactTypes:       []string{"apk"},
			Aliases:             []string{"CVE-2026-1"},
			EventReviewStates:   []vulnpb.ReviewState{2},
			EventReviewers:      []string{"eve"},
			EventTypes:          []vulnpb.EventTypeFilter{3},
			ExcludeEventAuthors: []string{"bob"},
			LatestEventType:     vulnpb.EventTypeFilter_EVENT_TYPE_FILTER_FIXED.Enum(),
			Query:               "SSL",
			Origin:              proto.String("openssl"),
		})},
		{name: "list advisories of nothing", in: list(&vulnpb.ListAdvisoriesRequest{ComponentNames: []string{"x"}})},
		{name: "list advisories of a stranger", in: list(&vulnpb.ListAdvisoriesRequest{}), as: "stranger"},
		{name: "ask about an old version", in: ask(old)},
		{
			name: "ask about a new version",
			in:   ask(&advisoriespb.PackageVersion{Purl: "pkg:apk/alpine/openssl@3.3.2-r1?distro=alpine-3.20"}),
		},
		{name: "ask about several", in: func(*story) proto.Message {
			return &advisoriespb.BatchQueryAdvisoriesRequest{
				Packages: []*advisoriespb.PackageVersion{old, {Ecosystem: "Go", Name: "x", Version: "1.0.0"}},
			}
		}},
		{name: "ask as a stranger", in: ask(old), as: "stranger"},
		{name: "feed", in: func(s *story) proto.Message {
			return &advisoriespb.CreateAdvisoryFeedRequest{Parent: s.uid("folder"), Feed: theFeed("feed")}
		}},
		{name: "feed of the same name", code: codes.AlreadyExists, in: func(s *story) proto.Message {
			return &advisoriespb.CreateAdvisoryFeedRequest{Parent: s.uid("folder"), Feed: theFeed("feed")}
		}},
		{name: "get feed", in: func(s *story) proto.Message {
			return &advisoriespb.GetAdvisoryFeedRequest{Uid: s.uid("feed")}
		}},
		{name: "update feed", in: func(s *story) proto.Message {
			return &advisoriespb.UpdateAdvisoryFeedRequest{Feed: &advisoriespb.AdvisoryFeed{Uid: s.uid("feed"), Name: "other"}}
		}},
		{name: "run paused feed", code: codes.FailedPrecondition, in: func(s *story) proto.Message {
			return &advisoriespb.RunAdvisoryFeedRequest{Uid: s.uid("feed")}
		}},
		{name: "resume feed", in: func(s *story) proto.Message {
			return &advisoriespb.UpdateAdvisoryFeedRequest{
				Feed: &advisoriespb.AdvisoryFeed{Uid: s.uid("feed")}, UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"paused"}},
			}
		}},
		{name: "run feed", in: func(s *story) proto.Message {
			return &advisoriespb.RunAdvisoryFeedRequest{Uid: s.uid("feed")}
		}},
		{name: "list feeds", in: func(*story) proto.Message { return &advisoriespb.ListAdvisoryFeedsRequest{Name: "other"} }},
		{name: "group that has advisories", code: codes.FailedPrecondition, in: func(s *story) proto.Message {
			return &iampb.DeleteGroupRequest{Uid: s.uid("folder")}
		}},
	},
		refusals("get advisory", codes.NotFound, func(uid string) proto.Message {
			return &vulnpb.GetAdvisoryRequest{Uid: uid}
		}),
		refusals("create advisory", codes.NotFound, func(uid string) proto.Message {
			return &advisoriespb.CreateAdvisoryRequest{Parent: uid, Advisory: theAdvisory()}
		}),
		refusals("update advisory", codes.NotFound, func(uid string) proto.Message {
			return &advisoriespb.UpdateAdvisoryRequest{Advisory: &vulnpb.Advisory{Uid: uid, Details: "x"}}
		}),
		refusals("create event", codes.NotFound, func(uid string) proto.Message {
			return &advisoriespb.CreateAdvisoryEventRequest{Parent: uid, Event: fixedIn("1")}
		}),
		refusals("update event", codes.NotFound, func(uid string) proto.Message {
			return &advisoriespb.UpdateAdvisoryEventRequest{Event: &vulnpb.AdvisoryEvent{Uid: uid, Author: "x"}}
		}),
		refusals("get feed", codes.NotFound, func(uid string) proto.Message {
			return &advisoriespb.GetAdvisoryFeedRequest{Uid: uid}
		}),
		refusals("run feed", codes.NotFound, func(uid string) proto.Message {
			return &advisoriespb.RunAdvisoryFeedRequest{Uid: uid}
		}),
		refusals("create feed", codes.NotFound, func(uid string) proto.Message {
			return &advisoriespb.CreateAdvisoryFeedRequest{Parent: uid, Feed: theFeed("x")}
		}),
		[]step{
			{name: "delete feed", in: func(s *story) proto.Message {
				return &advisoriespb.DeleteAdvisoryFeedRequest{Uid: s.uid("feed")}
			}},
			{name: "delete advisory", in: func(s *story) proto.Message {
				return &advisoriespb.DeleteAdvisoryRequest{Uid: s.uid("advisory")}
			}},
		},
		refusals("delete feed", codes.NotFound, func(uid string) proto.Message {
			return &advisoriespb.DeleteAdvisoryFeedRequest{Uid: uid}
		}),
		refusals("delete advisory", codes.NotFound, func(uid string) proto.Message {
			return &advisoriespb.DeleteAdvisoryRequest{Uid: uid}
		}),
	)
}

// advisoryAccesses returns, by name, the methods that act on one advisory or feed.
func (h *hierarchy) advisoryAccesses() map[string]access {
	folder := func(*testing.T) string { return h.folder }
	advisory := func(t *testing.T) string { return h.advise(t, h.folder, theAdvisory()) }
	event := func(t *testing.T) string {
		return must[*vulnpb.AdvisoryEvent](t, h.overGRPC, h.Token, &advisoriespb.CreateAdvisoryEventRequest{
			Parent: advisory(t), Event: fixedIn("1"),
		}).GetUid()
	}
	feed := func(t *testing.T) string {
		return must[*advisoriespb.AdvisoryFeed](t, h.overGRPC, h.Token, &advisoriespb.CreateAdvisoryFeedRequest{
			Parent: h.folder, Feed: theFeed(h.name()),
		}).GetUid()
	}
	resumed := func(t *testing.T) string {
		f := theFeed(h.name())
		f.Paused = false
		return must[*advisoriespb.AdvisoryFeed](t, h.overGRPC, h.Token, &advisoriespb.CreateAdvisoryFeedRequest{
			Parent: h.folder, Feed: f,
		}).GetUid()
	}
	return map[string]access{
		"GetAdvisory": {"advisories.list", advisory, func(uid string) proto.Message {
			return &vulnpb.GetAdvisoryRequest{Uid: uid}
		}},
		"CreateAdvisory": {"advisories.create", folder, func(uid string) proto.Message {
			return &advisoriespb.CreateAdvisoryRequest{Parent: uid, Advisory: theAdvisory()}
		}},
		"UpdateAdvisory": {"advisories.update", advisory, func(uid string) proto.Message {
			return &advisoriespb.UpdateAdvisoryRequest{Advisory: &vulnpb.Advisory{Uid: uid, Details: h.name()}}
		}},
		"DeleteAdvisory": {"advisories.delete", advisory, func(uid string) proto.Message {
			return &advisoriespb.DeleteAdvisoryRequest{Uid: uid}
		}},
		"CreateAdvisoryEvent": {"advisories.create", advisory, func(uid string) proto.Message {
			return &advisoriespb.CreateAdvisoryEventRequest{Parent: uid, Event: fixedIn(h.name())}
		}},
		"UpdateAdvisoryEvent": {"advisories.update", event, func(uid string) proto.Message {
			return &advisoriespb.UpdateAdvisoryEventRequest{Event: &vulnpb.AdvisoryEvent{Uid: uid, Author: h.name()}}
		}},
		"GetAdvisoryFeed": {"advisories.list", feed, func(uid string) proto.Message {
			return &advisoriespb.GetAdvisoryFeedRequest{Uid: uid}
		}},
		"CreateAdvisoryFeed": {"advisories.create", folder, func(uid string) proto.Message {
			return &advisoriespb.CreateAdvisoryFeedRequest{Parent: uid, Feed: theFeed(h.name())}
		}},
		"UpdateAdvisoryFeed": {"advisories.update", feed, func(uid string) proto.Message {
			return &advisoriespb.UpdateAdvisoryFeedRequest{Feed: &advisoriespb.AdvisoryFeed{Uid: uid, Name: h.name()}}
		}},
		"RunAdvisoryFeed": {"advisories.update", resumed, func(uid string) proto.Message {
			return &advisoriespb.RunAdvisoryFeedRequest{Uid: uid}
		}},
		"DeleteAdvisoryFeed": {"advisories.delete", feed, func(uid string) proto.Message {
			return &advisoriespb.DeleteAdvisoryFeedRequest{Uid: uid}
		}},
	}
}

// TestApiReview changes the review states of events. Callers who may write, but not approve, must not set a state
// that needs approval.
func TestApiReview(t *testing.T) {
	t.Parallel()
	storyWorld(t, func(t *testing.T, w *world) {
		h := newHierarchy(t, w)
		writer := h.lacking["advisories.approve"]
		for protocol, call := range w.protocols() {
			uid := w.advise(t, h.folder, theAdvisory())
			for _, state := range []vulnpb.ReviewState{2, 3, 4} {
				e := fixedIn("1")
				e.ReviewState = state
				_, st := call(t, writer, &advisoriespb.CreateAdvisoryEventRequest{Parent: uid, Event: e})
				checkDenied(t, protocol+": a new event in state "+state.String(), st, "advisories.approve", uid)
				a := theAdvisory()
				a.Events = []*vulnpb.AdvisoryEvent{e}
				_, st = call(t, writer, &advisoriespb.CreateAdvisoryRequest{Parent: h.folder, Advisory: a})
				checkDenied(t, protocol+": a new advisory with an event in state "+state.String(),
					st, "advisories.approve", h.folder)
			}
			e := must[*vulnpb.AdvisoryEvent](t, call, writer, &advisoriespb.CreateAdvisoryEventRequest{
				Parent: uid, Event: fixedIn("1"),
			})
			if e.GetReviewState() != vulnpb.ReviewState_REVIEW_STATE_PENDING || e.GetAuthor() == "" {
				t.Errorf("%s: new event %v, want it pending, with an author", protocol, e)
			}
			approve := &advisoriespb.UpdateAdvisoryEventRequest{Event: &vulnpb.AdvisoryEvent{Uid: e.GetUid(), ReviewState: 2}}
			_, st := call(t, writer, approve)
			checkDenied(t, protocol+": approval", st, "advisories.approve", e.GetUid())
			approved := must[*vulnpb.AdvisoryEvent](t, call, h.full["folder"], approve)
			if approved.GetReviewState() != 2 || approved.GetReviewer() == "" || approved.GetAuthor() != e.GetAuthor() {
				t.Errorf("%s: approved event %v", protocol, approved)
			}
			if _, st := call(t, h.full["folder"], &advisoriespb.UpdateAdvisoryEventRequest{
				Event: &vulnpb.AdvisoryEvent{Uid: e.GetUid(), Author: "x"},
			}); st.Code() != codes.FailedPrecondition {
				t.Errorf("%s: change of an approved event: %v", protocol, st)
			}
		}
	})
}

func badAdvisories(x things) map[string]badRequest {
	create := func(change func(*vulnpb.Advisory)) proto.Message {
		a := theAdvisory()
		change(a)
		return &advisoriespb.CreateAdvisoryRequest{Parent: x.folder, Advisory: a}
	}
	id := func(s string) proto.Message {
		return &advisoriespb.CreateAdvisoryRequest{Parent: x.folder, Advisory: theAdvisory(), AdvisoryId: s}
	}
	versions := func(events ...*vulnpb.RangeEvent) proto.Message {
		return create(func(a *vulnpb.Advisory) { a.Affected[0].Ranges[0].Events = events })
	}
	introduced := func(s string) *vulnpb.RangeEvent {
		return &vulnpb.RangeEvent{At: &vulnpb.RangeEvent_Introduced{Introduced: s}}
	}
	fixed := func(s string) *vulnpb.RangeEvent { return &vulnpb.RangeEvent{At: &vulnpb.RangeEvent_Fixed{Fixed: s}} }
	score := func(kind vulnpb.Severity_Type, s string) proto.Message {
		return create(func(a *vulnpb.Advisory) { a.Severities = []*vulnpb.Severity{{Type: kind, Score: s}} })
	}
	return map[string]badRequest{
		"nothing": {
			"artifact_name", &advisoriespb.CreateAdvisoryRequest{Parent: x.folder, Advisory: &vulnpb.Advisory{}},
		},
		"artifact with a NUL": {"artifact_name", create(func(a *vulnpb.Advisory) { a.ArtifactName = "a\x00" })},
		"artifact without end": {"artifact_name", create(func(a *vulnpb.Advisory) {
			a.ArtifactName = strings.Repeat("x", 2049)
		})},
		"type without end": {"artifact_type", create(func(a *vulnpb.Advisory) {
			a.ArtifactType = strings.Repeat("x", 2049)
		})},
		"author with a NUL":    {"author", create(func(a *vulnpb.Advisory) { a.Author = "\x00" })},
		"component with a NUL": {"component_name", create(func(a *vulnpb.Advisory) { a.ComponentName = "\x00" })},
		"location with a NUL": {"component_location", create(func(a *vulnpb.Advisory) {
			a.ComponentLocation = "\x00"
		})},
		"empty alias": {"aliases", create(func(a *vulnpb.Advisory) { a.Aliases = []string{""} })},
		"too many aliases": {"aliases", create(func(a *vulnpb.Advisory) {
			a.Aliases = slices.Repeat([]string{"x"}, 513)
		})},
		"summary without end": {"summary", create(func(a *vulnpb.Advisory) {
			a.Summary = strings.Repeat("x", 2049)
		})},
		"details without end": {"details", create(func(a *vulnpb.Advisory) {
			a.Details = strings.Repeat("x", 256<<10+1)
		})},
		"id with a space":             {"advisory_id", id("A 1")},
		"id with a line break":        {"advisory_id", id("A\n1")},
		"id without end":              {"advisory_id", id(strings.Repeat("A", 300))},
		"severity of no version":      {"severities", score(0, "CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:H/I:H/A:H")},
		"severity of another version": {"severities", score(3, "CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:H/I:H/A:H")},
		"severity that is none":       {"severities", score(2, "bad")},
		"package without a name":      {"affected[0].name", create(func(a *vulnpb.Advisory) { a.Affected[0].Name = "" })},
		"range of no type": {"affected[0].ranges[0].type", create(func(a *vulnpb.Advisory) {
			a.Affected[0].Ranges[0].Type = "x"
		})},
		"range event of nothing":  {"affected[0].ranges[0].events", versions(&vulnpb.RangeEvent{})},
		"version without end":     {"affected[0].ranges[0].events", versions(introduced(strings.Repeat("1", 257)))},
		"fixed before introduced": {"affected[0].ranges", versions(introduced("2-r0"), fixed("1-r0"))},
		"event of nothing": {"events[0].type", create(func(a *vulnpb.Advisory) {
			a.Events = []*vulnpb.AdvisoryEvent{{}}
		})},
	}
}

func badAdvisoryEvents(x things) map[string]badRequest {
	create := func(e *vulnpb.AdvisoryEvent) proto.Message {
		return &advisoriespb.CreateAdvisoryEventRequest{Parent: x.folder + "/0123456789abcdef", Event: e}
	}
	with := func(change func(*vulnpb.AdvisoryEvent)) proto.Message {
		e := fixedIn("1")
		change(e)
		return create(e)
	}
	return map[string]badRequest{
		"nothing":            {"type", create(&vulnpb.AdvisoryEvent{})},
		"findings of no use": {"findings", with(func(e *vulnpb.AdvisoryEvent) { e.Findings = []byte("{") })},
		"author with a NUL":  {"author", with(func(e *vulnpb.AdvisoryEvent) { e.Author = "\x00" })},
		"issue with a NUL":   {"issue", with(func(e *vulnpb.AdvisoryEvent) { e.Issue = proto.String("\x00") })},
		"note without end": {"note", with(func(e *vulnpb.AdvisoryEvent) {
			e.GetFixed().Note = strings.Repeat("x", 16<<10+1)
		})},
		"note with a bell": {"note", with(func(e *vulnpb.AdvisoryEvent) { e.GetFixed().Note = "\a" })},
		"version with a NUL": {"fixed.fixed_version", with(func(e *vulnpb.AdvisoryEvent) {
			e.GetFixed().FixedVersion = "\x00"
		})},
		"state of no name": {"review_state", with(func(e *vulnpb.AdvisoryEvent) { e.ReviewState = 9 })},
		"reason of no name": {"false_positive_determination.type",
			create(&vulnpb.AdvisoryEvent{Type: &vulnpb.AdvisoryEvent_FalsePositiveDetermination_{
				FalsePositiveDetermination: &vulnpb.AdvisoryEvent_FalsePositiveDetermination{Type: 99},
			}})},
	}
}

func badAdvisoryLists(x things) map[string]badRequest {
	many := slices.Repeat([]string{"x"}, 201)
	table := map[string]badRequest{
		"negative size":    {"page_size", &vulnpb.ListAdvisoriesRequest{PageSize: -1}},
		"negative skip":    {"skip", &vulnpb.ListAdvisoriesRequest{Skip: -1}},
		"order by nothing": {"order_by", &vulnpb.ListAdvisoriesRequest{OrderBy: "summary"}},
		"forged token":     {"page_token", &vulnpb.ListAdvisoriesRequest{PageToken: "x"}},
		"ids with a NUL":   {"advisory_ids", &vulnpb.ListAdvisoriesRequest{AdvisoryIds: []string{"\x00"}}},
		"too many ids":     {"advisory_ids", &vulnpb.ListAdvisoriesRequest{AdvisoryIds: many}},
		"too many names":   {"artifact_names", &vulnpb.ListAdvisoriesRequest{ArtifactNames: many}},
		"too many aliases": {"aliases", &vulnpb.ListAdvisoriesRequest{Aliases: many}},
		"state of no name": {
			"event_review_states", &vulnpb.ListAdvisoriesRequest{EventReviewStates: []vulnpb.ReviewState{9}},
		},
		"type of no name": {"event_types", &vulnpb.ListAdvisoriesRequest{EventTypes: []vulnpb.EventTypeFilter{99}}},
		"latest of no name": {
			"latest_event_type", &vulnpb.ListAdvisoriesRequest{LatestEventType: vulnpb.EventTypeFilter(99).Enum()},
		},
		"query with a NUL":  {"query", &vulnpb.ListAdvisoriesRequest{Query: "\x00"}},
		"query without end": {"query", &vulnpb.ListAdvisoriesRequest{Query: strings.Repeat("x", 257)}},
		"place that is none": {
			"uidp.children_of", &vulnpb.ListAdvisoriesRequest{Uidp: &commonpb.UIDPFilter{ChildrenOf: "x"}},
		},
		"feeds by nothing": {"order_by", &advisoriespb.ListAdvisoryFeedsRequest{OrderBy: "address"}},
	}
	for value, uid := range badUIDValues(x) {
		if uid != "" {
			table["get advisory with "+value] = badRequest{"uid", &vulnpb.GetAdvisoryRequest{Uid: uid}}
		}
	}
	return table
}

func badFeeds(x things) map[string]badRequest {
	create := func(change func(*advisoriespb.AdvisoryFeed)) proto.Message {
		f := theFeed("x")
		change(f)
		return &advisoriespb.CreateAdvisoryFeedRequest{Parent: x.folder, Feed: f}
	}
	address := func(s string) proto.Message { return create(func(f *advisoriespb.AdvisoryFeed) { f.Address = s }) }
	return map[string]badRequest{
		"nothing":   {"name", &advisoriespb.CreateAdvisoryFeedRequest{Parent: x.folder, Feed: &advisoriespb.AdvisoryFeed{}}},
		"capitals":  {"name", create(func(f *advisoriespb.AdvisoryFeed) { f.Name = "X" })},
		"too often": {"interval", create(func(f *advisoriespb.AdvisoryFeed) { f.Interval = durationpb.New(time.Second) })},
		"too seldom": {"interval", create(func(f *advisoriespb.AdvisoryFeed) {
			f.Interval = durationpb.New(1000 * time.Hour)
		})},
		"no address":            {"address", address("")},
		"address in the clear":  {"address", address("http://feeds.example/all.zip")},
		"address of the system": {"address", address("file:///etc/passwd")},
		"folder not allowed":    {"address", address("/etc")},
		"folder in disguise":    {"address", address("/srv/../etc")},
		"address with a NUL":    {"address", address("https://feeds.example/\x00")},
	}
}

func badQuestions(things) map[string]badRequest {
	ask := func(p *advisoriespb.PackageVersion) proto.Message {
		return &advisoriespb.QueryAdvisoriesRequest{Package: p}
	}
	return map[string]badRequest{
		"nothing":            {"package.ecosystem", ask(&advisoriespb.PackageVersion{})},
		"no version":         {"package.version", ask(&advisoriespb.PackageVersion{Ecosystem: "Go", Name: "x"})},
		"purl that is none":  {"package.purl", ask(&advisoriespb.PackageVersion{Purl: "x"})},
		"purl and a name":    {"package", ask(&advisoriespb.PackageVersion{Purl: "pkg:golang/x@1", Name: "x"})},
		"version of no purl": {"package.version", ask(&advisoriespb.PackageVersion{Purl: "pkg:golang/x"})},
		"version that is none": {
			"package.version", ask(&advisoriespb.PackageVersion{Ecosystem: "npm", Name: "x", Version: "not a version"}),
		},
		"name without end": {
			"package.name", ask(&advisoriespb.PackageVersion{Ecosystem: "Go", Name: strings.Repeat("x", 2049), Version: "1"}),
		},
		"no packages": {"packages", &advisoriespb.BatchQueryAdvisoriesRequest{}},
		"too many packages": {
			"packages",
			&advisoriespb.BatchQueryAdvisoriesRequest{
				Packages: slices.Repeat([]*advisoriespb.PackageVersion{{Purl: "pkg:golang/x@1"}}, 1001),
			},
		},
		"one package of several": {
			"packages[1].purl",
			&advisoriespb.BatchQueryAdvisoriesRequest{
				Packages: []*advisoriespb.PackageVersion{{Purl: "pkg:golang/x@1.0.0"}, {Purl: "x"}},
			},
		},
	}
}

// advisoryExamples returns example calls for advisories, events, feeds and queries.
func advisoryExamples(t *testing.T, w *world, x things) map[string][]example {
	t.Helper()
	nothing := x.org + "/0123456789abcdef"
	body := `{"artifactName":"openssl","artifactType":"apk","aliases":["CVE-2026-1"],` +
		`"affected":[{"ecosystem":"Alpine","name":"openssl","ranges":[{"type":"ECOSYSTEM",` +
		`"events":[{"introduced":"0"},{"fixed":"1-r0"}]}]}]}`
	feed := `{"name":"x","address":"https://feeds.example/x.zip","interval":"3600s","paused":true}`
	uid := w.post(t, "/advisories/v1/advisories/"+x.org+"?advisory_id=A-1", body)
	spare := w.post(t, "/advisories/v1/advisories/"+x.org, body)
	event := w.post(t, "/advisories/v1/advisoryEvents/"+uid, `{"fixed":{"fixedVersion":"1-r0"}}`)
	fed := w.post(t, "/advisories/v1/feeds/"+x.folder, feed)
	resumed := w.post(t, "/advisories/v1/feeds/"+x.folder,
		strings.Replace(strings.Replace(feed, `"x"`, `"resumed"`, 1), ",\"paused\":true", "", 1))
	list := []example{{}, {all: true}, {query: "page_size=-1", fails: true}, {query: "order_by=nothing", fails: true}}
	change := func(uid, body, bad string) []example {
		return []example{
			{uid: uid, body: body},
			{uid: uid, query: "validate_only=true", body: body},
			{uid: uid, body: bad, fails: true},
			{uid: nothing, body: body, fails: true},
		}
	}
	return map[string][]example{
		"AdvisoriesService_ListAdvisories": list,
		"AdvisoriesService_GetAdvisory": {
			{uid: uid}, {uid: strings.ReplaceAll(uid, "/", "%2F")}, {uid: nothing, fails: true},
		},
		"AdvisoryWritingService_CreateAdvisory": {
			{uid: x.folder, body: body},
			{uid: x.folder, query: "advisory_id=A-9&validate_only=true", body: body},
			{uid: x.folder, body: `{}`, fails: true},
		},
		"AdvisoryWritingService_UpdateAdvisory": change(uid, `{"summary":"new"}`, `{"artifactName":""}`),
		"AdvisoryWritingService_DeleteAdvisory": {{uid: spare}, {uid: spare, fails: true}},
		"AdvisoryWritingService_CreateAdvisoryEvent": {
			{uid: uid, body: `{"truePositiveDetermination":{"note":"x"},"reviewState":"REVIEW_STATE_APPROVED"}`},
			{uid: uid, body: `{}`, fails: true},
		},
		"AdvisoryWritingService_UpdateAdvisoryEvent": change(event, `{"author":"ann"}`,
			`{"reviewState":"REVIEW_STATE_UNSPECIFIED","findings":"eA=="}`),
		"AdvisoryFeedsService_ListAdvisoryFeeds":  list,
		"AdvisoryFeedsService_GetAdvisoryFeed":    {{uid: fed}, {uid: nothing, fails: true}},
		"AdvisoryFeedsService_CreateAdvisoryFeed": {{uid: x.org, body: feed}, {uid: x.org, body: `{}`, fails: true}},
		"AdvisoryFeedsService_UpdateAdvisoryFeed": change(fed, `{"interval":"7200s"}`, `{"interval":"1s"}`),
		"AdvisoryFeedsService_RunAdvisoryFeed": {
			{uid: resumed, body: `{}`}, {uid: fed, body: `{}`, fails: true}, {uid: nothing, body: `{}`, fails: true},
		},
		"AdvisoryFeedsService_DeleteAdvisoryFeed": {{uid: fed}, {uid: fed, fails: true}},
		"AdvisoryReadingService_QueryAdvisories": {
			{body: `{"package":{"purl":"pkg:apk/alpine/openssl@0.9-r0"}}`}, {body: `{}`, fails: true},
		},
		"AdvisoryReadingService_BatchQueryAdvisories": {
			{body: `{"packages":[{"ecosystem":"Alpine","name":"openssl","version":"0.9-r0"}]}`}, {body: `{}`, fails: true},
		},
	}
}
