package api

import (
	"context"
	"errors"
	"testing"
	"time"

	"google.golang.org/grpc/metadata"

	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
	"github.com/holdfast-dev/holdfast/internal/core/resource"
)

// TestExpect checks which versions of a resource a request may name, over HTTP and over gRPC.
func TestExpect(t *testing.T) {
	const group, version = resource.UID("a1"), "2026-11-01T12:00:00.000Z"
	updated, err := time.Parse(time.RFC3339, version)
	if err != nil {
		t.Fatal(err)
	}
	quoted := `"` + version + `"`
	tests := map[string]struct {
		given   []string
		rule    rule
		err     error
		expects bool
	}{
		"nothing":               {nil, rule{versioned: true}, nil, false},
		"a version":             {[]string{quoted}, rule{versioned: true}, nil, true},
		"a weak version":        {[]string{"W/" + quoted}, rule{versioned: true}, nil, true},
		"no time":               {[]string{`"7"`}, rule{versioned: true}, fault.InvalidArgument, false},
		"without quotes":        {[]string{version}, rule{versioned: true}, fault.InvalidArgument, false},
		"two versions":          {[]string{quoted, quoted}, rule{versioned: true}, fault.InvalidArgument, false},
		"a version and no time": {[]string{quoted, ""}, rule{versioned: true}, fault.InvalidArgument, false},
		"of a read":             {[]string{quoted, quoted}, rule{read: true}, nil, false},
		"of no single resource": {[]string{quoted}, rule{}, fault.InvalidArgument, false},
	}
	for name, tt := range tests {
		for protocol, ctx := range map[string]context.Context{
			"HTTP": context.WithValue(t.Context(), callKey{},
				&call{rule: tt.rule, origin: origin{gateway: true, ifMatch: tt.given}}),
			"gRPC": metadata.NewIncomingContext(context.WithValue(t.Context(), callKey{}, &call{rule: tt.rule}),
				metadata.MD{ifMatch: tt.given}),
		} {
			t.Run(name+" over "+protocol, func(t *testing.T) {
				got, err := expect(ctx, &iampb.UpdateGroupRequest{Group: &iampb.Group{Uid: string(group)}})
				if !errors.Is(err, tt.err) {
					t.Fatalf("error = %v, want %v", err, tt.err)
				}
				if err != nil {
					return
				}
				if err := resource.CheckExpected(got, group, updated); err != nil {
					t.Errorf("the version that the request names: %v", err)
				}
				if err := resource.CheckExpected(got, group, updated.Add(time.Second)); (err != nil) != tt.expects {
					t.Errorf("another version: %v", err)
				}
			})
		}
	}
}
