package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/holdfast-dev/holdfast/internal/access/authz"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

const (
	getGroup    = "/holdfast.iam.v2beta1.GroupsService/GetGroup"
	deleteGroup = "/holdfast.iam.v2beta1.GroupsService/DeleteGroup"
	pingMethod  = "/holdfast.ping.v2beta1.PingService/Ping"
)

// quietChain returns a chain that logs to log and accepts only the token "good".
func quietChain(log *bytes.Buffer) *chain {
	cfg := Config{
		Domain: "iam.example.com", Log: slog.New(slog.NewJSONHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	return newChain(cfg, func(_ context.Context, o origin) (authz.Caller, error) {
		if o.token != "good" {
			return authz.Caller{}, fault.New(fault.Unauthenticated, "Unauthenticated: expired")
		}
		return authz.Caller{Identity: "caller"}, nil
	})
}

func with(o origin) context.Context { return context.WithValue(context.Background(), originKey{}, &o) }

func TestChainOutcomes(t *testing.T) {
	boom := errors.New("disk on fire")
	tests := map[string]struct {
		method  string
		token   string
		handler func() error
		code    codes.Code
		message string
		level   string
	}{
		"a read":  {getGroup, "good", func() error { return nil }, 0, "", "DEBUG"},
		"a write": {deleteGroup, "good", func() error { return nil }, 0, "", "INFO"},
		"the client's mistake": {
			getGroup, "good", func() error { return fault.Missing("group", "x") }, 5, "Not found: group x", "INFO",
		},
		"a bad token":        {getGroup, "bad", func() error { return nil }, 16, "Unauthenticated: expired", "INFO"},
		"no token is needed": {pingMethod, "bad", func() error { return nil }, 0, "", "DEBUG"},
		"an unknown method":  {"/x.Y/Z", "bad", func() error { return nil }, 16, "Unauthenticated: expired", "INFO"},
		"our mistake":        {getGroup, "good", func() error { return boom }, 13, "Internal error: request id-1", "ERROR"},
		"an outage": {getGroup, "good", func() error { return fault.Outage("the database", boom) }, 14,
			"Unavailable: the database cannot be used right now; try again", "ERROR"},
		"a panic": {getGroup, "good", func() error { panic(boom) }, 13, "Internal error: request id-1", "ERROR"},
		"the caller gone": {
			getGroup, "good", func() error { return context.Canceled }, 1, "Cancelled: the caller went away", "INFO",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			c := quietChain(&log)
			_, err := c.unary(with(origin{
				id: "id-1", remote: "192.0.2.1", token: tt.token,
			}), nil, &grpc.UnaryServerInfo{FullMethod: tt.method},
				func(context.Context, any) (any, error) { return nil, tt.handler() })
			if st := status.Convert(err); st.Code() != tt.code || st.Message() != tt.message {
				t.Errorf("status = %v %q, want %v %q", st.Code(), st.Message(), tt.code, tt.message)
			}
			var line map[string]any
			if err := json.Unmarshal(log.Bytes(), &line); err != nil {
				t.Fatalf("log %q: %v", log.String(), err)
			}
			if line["level"] != tt.level || line["request"] != "id-1" || line["remote"] != "192.0.2.1" {
				t.Errorf("log line %v, want level %s", line, tt.level)
			}
			cause, _ := line["cause"].(string)
			if strings.Contains(cause, boom.Error()) != (tt.level == "ERROR") {
				t.Errorf("cause %q at level %s", cause, tt.level)
			}
			if strings.Contains(log.String(), `"`+tt.token+`"`) {
				t.Error("the token is in the log")
			}
		})
	}
}

func TestChainContext(t *testing.T) {
	c := quietChain(&bytes.Buffer{})
	md := metadata.Pairs("authorization", "good", "x-request-id", "from-the-client")
	stream := &headerStream{}
	ctx := grpc.NewContextWithServerTransportStream(metadata.NewIncomingContext(t.Context(), md), stream)
	info := &grpc.UnaryServerInfo{FullMethod: getGroup}
	_, err := c.unary(ctx, nil, info, func(ctx context.Context, _ any) (any, error) {
		if caller, ok := authz.CallerFrom(ctx); !ok || caller.Identity != "caller" {
			t.Errorf("caller = %v, %t", caller, ok)
		}
		if a := resource.ActorFrom(ctx); a.Subject != "caller" || a.RequestID != "from-the-client" {
			t.Errorf("actor = %+v", a)
		}
		if d, ok := ctx.Deadline(); !ok || time.Until(d) > defaultDeadline {
			t.Errorf("deadline = %v, %t", d, ok)
		}
		return nil, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := stream.header.Get("x-request-id"); len(got) != 1 || got[0] != "from-the-client" {
		t.Errorf("x-request-id = %q", got)
	}
}

// TestOverdue: if the deadline that the caller has set passes, the error is
// DeadlineExceeded. If the time limit of the server passes, it is Unavailable, so that
// the caller can retry.
func TestOverdue(t *testing.T) {
	wait := func(ctx context.Context, _ any) (any, error) { <-ctx.Done(); return nil, ctx.Err() }
	for name, tt := range map[string]struct {
		deadline time.Duration
		want     codes.Code
	}{
		"ours":         {0, codes.Unavailable},
		"the caller's": {time.Second, codes.DeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx := with(origin{token: "good"})
				if tt.deadline > 0 {
					limited, cancel := context.WithTimeout(ctx, tt.deadline)
					defer cancel()
					ctx = limited
				}
				_, err := quietChain(&bytes.Buffer{}).unary(ctx, nil, &grpc.UnaryServerInfo{FullMethod: getGroup}, wait)
				if status.Code(err) != tt.want {
					t.Errorf("error = %v, want %v", err, tt.want)
				}
			})
		})
	}
}

func TestRequestIDs(t *testing.T) {
	for _, id := range []string{"abc-123_.:/+=", strings.Repeat("a", 128)} {
		if got := requestID([]string{id}); got != id {
			t.Errorf("requestID(%q) = %q", id, got)
		}
	}
	for _, id := range []string{"", "a b", "a\nb", "é", `"`, strings.Repeat("a", 128+1)} {
		if got := requestID([]string{id}); got == id || !goodRequestID.MatchString(got) {
			t.Errorf("requestID(%q) = %q", id, got)
		}
	}
	if first, second := requestID(nil), requestID(nil); first == second {
		t.Error("two requests have one id")
	}
}

func TestChainMetrics(t *testing.T) {
	registry := prometheus.NewRegistry()
	c := newChain(Config{Log: slog.New(slog.DiscardHandler), Metrics: registry, Version: "v1"}, nil)
	// The metrics count a call of an alias under the primary name of the method.
	_, err := c.unary(with(origin{}), nil, &grpc.UnaryServerInfo{FullMethod: "/holdfast.ping.v2.PingService/Ping"},
		func(context.Context, any) (any, error) { return nil, fault.Field("x", "wrong") })
	if err == nil {
		t.Fatal("no error")
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	text := ""
	for _, f := range families {
		text += f.String()
	}
	for _, want := range []string{
		"holdfast_build_info", "holdfast_calls_in_flight", "holdfast.ping.v2beta1.PingService/Ping",
		`value:"INVALID_ARGUMENT"`, "sample_count:1",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in %s", want, text)
		}
	}
}

func TestStatusDetails(t *testing.T) {
	f := &fault.Error{
		Code: fault.FailedPrecondition, Message: "m", Metadata: map[string]string{"k": "v"},
		Fields:   []fault.Violation{{Subject: "f", Description: "d"}},
		Unmet:    []fault.Violation{{Subject: "T", Description: "d"}},
		Resource: &fault.Resource{Type: "group", Name: "n"}, RetryIn: time.Second,
	}
	st := statusOf(f, "iam.example.com", "id")
	all := st.Details()
	if len(all) != 5 {
		t.Fatalf("details = %v", all)
	}
	if i, ok := all[0].(*errdetails.ErrorInfo); !ok || i.Reason != "FAILED_PRECONDITION" ||
		i.Domain != "iam.example.com" || i.Metadata["k"] != "v" {
		t.Errorf("first = %v", all[0])
	}
	if b, ok := all[1].(*errdetails.BadRequest); !ok || b.FieldViolations[0].Field != "f" {
		t.Errorf("second = %v", all[1])
	}
	if p, ok := all[2].(*errdetails.PreconditionFailure); !ok || p.Violations[0].Type != "T" {
		t.Errorf("third = %v", all[2])
	}
	if r, ok := all[3].(*errdetails.ResourceInfo); !ok || r.ResourceName != "n" {
		t.Errorf("fourth = %v", all[3])
	}
	if r, ok := all[4].(*errdetails.RetryInfo); !ok || r.RetryDelay.Seconds != 1 {
		t.Errorf("fifth = %v", all[4])
	}
}
