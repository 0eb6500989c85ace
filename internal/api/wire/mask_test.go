package wire

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	capabilitiespb "github.com/holdfast-dev/holdfast/gen/capabilities"
	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
	"github.com/holdfast-dev/holdfast/internal/core/fault"
)

func claims(issuer, subject string) *iampb.Identity_ClaimMatch_ {
	return &iampb.Identity_ClaimMatch_{ClaimMatch: &iampb.Identity_ClaimMatch{
		Iss: &iampb.Identity_ClaimMatch_Issuer{Issuer: issuer}, Sub: &iampb.Identity_ClaimMatch_Subject{Subject: subject},
	}}
}

func subjectOnly(subject string) *iampb.Identity_ClaimMatch_ {
	return &iampb.Identity_ClaimMatch_{
		ClaimMatch: &iampb.Identity_ClaimMatch{Sub: &iampb.Identity_ClaimMatch_Subject{Subject: subject}},
	}
}

func keys(issuer string) *iampb.Identity_StaticKeys_ {
	return &iampb.Identity_StaticKeys_{StaticKeys: &iampb.Identity_StaticKeys{Issuer: issuer, Audiences: []string{"x"}}}
}

func TestMask(t *testing.T) {
	tests := map[string]struct {
		paths      []string
		from, onto proto.Message
		want       proto.Message
	}{
		"none: what is set changes, the rest stays": {
			nil,
			&iampb.Group{Uid: "other", Description: "new"},
			&iampb.Group{Uid: "u", Name: "n", Description: "old"},
			&iampb.Group{Uid: "u", Name: "n", Description: "new"},
		},
		"none: leaf by leaf": {
			nil,
			&iampb.Identity{Relationship: subjectOnly("new")},
			&iampb.Identity{Relationship: claims("i", "old")},
			&iampb.Identity{Relationship: claims("i", "new")},
		},
		"one: the others are ignored": {
			[]string{"description"},
			&iampb.Group{Name: "ignored", Description: "new"},
			&iampb.Group{Name: "n", Description: "old"},
			&iampb.Group{Name: "n", Description: "new"},
		},
		"one: clears": {
			[]string{"description"},
			&iampb.Group{},
			&iampb.Group{Name: "n", Description: "old"},
			&iampb.Group{Name: "n"},
		},
		"all: what is not given is cleared, and what is the service's stays": {
			[]string{"*"},
			&iampb.Group{Uid: "other", Name: "new", Status: 3, CreateTime: timestamppb.New(timestamppb.Now().AsTime())},
			&iampb.Group{Uid: "u", Name: "n", Description: "old", Verified: true, Status: 2},
			&iampb.Group{Uid: "u", Name: "new", Status: 2},
		},
		"what is the service's is passed over": {
			[]string{"uid", "create_time", "resourceLimits", "status", "name"},
			&iampb.Group{Uid: "other", Name: "new", Status: 3},
			&iampb.Group{Uid: "u", Name: "n", Status: 2},
			&iampb.Group{Uid: "u", Name: "new", Status: 2},
		},
		"so is what lies below it": {
			[]string{"identity.name", "role.uid", "createTime.seconds", "role_uid"},
			&iampb.RoleBinding{Identity: &iampb.RoleBindingIdentity{Name: "x"}, RoleUid: "r2", IdentityUid: "ignored"},
			&iampb.RoleBinding{RoleUid: "r", IdentityUid: "i"},
			&iampb.RoleBinding{RoleUid: "r2", IdentityUid: "i"},
		},
		"nested, in camel case": {
			[]string{"claimMatch.subject"},
			&iampb.Identity{Relationship: claims("ignored", "new")},
			&iampb.Identity{Relationship: claims("i", "old")},
			&iampb.Identity{Relationship: claims("i", "new")},
		},
		"nested, the whole of it": {
			[]string{"claim_match"},
			&iampb.Identity{Relationship: subjectOnly("new")},
			&iampb.Identity{Relationship: claims("i", "old")},
			&iampb.Identity{Relationship: subjectOnly("new")},
		},
		"nested: another member of the oneof takes over": {
			[]string{"static_keys.issuer", "static_keys.audiences"},
			&iampb.Identity{Relationship: keys("i")},
			&iampb.Identity{Relationship: claims("i", "s")},
			&iampb.Identity{Relationship: keys("i")},
		},
		"nested: a oneof inside": {
			[]string{"claim_match.subject_pattern"},
			&iampb.Identity{Relationship: &iampb.Identity_ClaimMatch_{ClaimMatch: &iampb.Identity_ClaimMatch{
				Sub: &iampb.Identity_ClaimMatch_SubjectPattern{SubjectPattern: "p"},
			}}},
			&iampb.Identity{Relationship: subjectOnly("old")},
			&iampb.Identity{Relationship: &iampb.Identity_ClaimMatch_{ClaimMatch: &iampb.Identity_ClaimMatch{
				Sub: &iampb.Identity_ClaimMatch_SubjectPattern{SubjectPattern: "p"},
			}}},
		},
		"nested: nothing is made to be cleared": {
			[]string{"static_keys.issuer"},
			&iampb.Identity{},
			&iampb.Identity{Relationship: claims("i", "s")},
			&iampb.Identity{Relationship: claims("i", "s")},
		},
		"clearing a member that is not the one set": {
			[]string{"aws_identity"},
			&iampb.Identity{},
			&iampb.Identity{Relationship: claims("i", "s")},
			&iampb.Identity{Relationship: claims("i", "s")},
		},
		"a list as a whole": {
			[]string{"capabilities"},
			&iampb.Role{Capabilities: []capabilitiespb.Capability{103}},
			&iampb.Role{Name: "n", Capabilities: []capabilitiespb.Capability{101, 102}},
			&iampb.Role{Name: "n", Capabilities: []capabilitiespb.Capability{103}},
		},
		"a map as a whole": {
			[]string{"claims"},
			&iampb.Identity_ClaimMatch{Claims: map[string]string{"b": "2"}},
			&iampb.Identity_ClaimMatch{Claims: map[string]string{"a": "1"}},
			&iampb.Identity_ClaimMatch{Claims: map[string]string{"b": "2"}},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			before := proto.Clone(tt.from)
			if err := Apply(&fieldmaskpb.FieldMask{Paths: tt.paths}, tt.from, tt.onto); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, tt.onto, protocmp.Transform()); diff != "" {
				t.Errorf("result (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(before, tt.from, protocmp.Transform()); diff != "" {
				t.Errorf("the request changed (-before +after):\n%s", diff)
			}
		})
	}
}

func TestMaskRefuses(t *testing.T) {
	tests := map[string][]string{
		"a field there is none of":     {"name", "nme"},
		"an empty path":                {""},
		"an empty segment":             {"claim_match."},
		"a path into text":             {"name.x"},
		"a path into a time":           {"static_keys.expiration_time.seconds"},
		"a path into a map":            {"claim_match.claims.a"},
		"a path into a list":           {"static_keys.audiences.0"},
		"a oneof":                      {"relationship"},
		"a star beside something":      {"*", "name"},
		"a star inside":                {"claim_match.*"},
		"other case":                   {"Name"},
		"too many paths":               strings.Split(strings.Repeat("name,", maxPaths)+"name", ","),
		"a path that is much too long": {"uid." + strings.Repeat("a", maxPathLength)},
	}
	for name, paths := range tests {
		t.Run(name, func(t *testing.T) {
			onto := &iampb.Identity{Name: "old"}
			err := Apply(&fieldmaskpb.FieldMask{Paths: paths}, &iampb.Identity{Name: "new"}, onto)
			if !errors.Is(err, fault.InvalidArgument) || fault.From(err).Fields[0].Subject != "update_mask" {
				t.Errorf("error = %v, want one about update_mask", err)
			}
			if onto.Name != "old" {
				t.Error("something was changed all the same")
			}
		})
	}
}

// FuzzMask checks that no mask changes fields that only the service sets, and that
// applying an update twice has the same result as applying it once.
func FuzzMask(f *testing.F) {
	seed, err := proto.Marshal(&iampb.Identity{Name: "n", Uid: "x", Relationship: claims("i", "s")})
	if err != nil {
		f.Fatal(err)
	}
	for _, paths := range []string{
		"", "*", "name", "claim_match.issuer,uid", "claimMatch", "claim_match.claims.x", "static_keys.audiences",
	} {
		f.Add(paths, seed)
	}
	f.Fuzz(func(t *testing.T, paths string, body []byte) {
		from := &iampb.Identity{}
		if proto.Unmarshal(body, from) != nil {
			return
		}
		mask := &fieldmaskpb.FieldMask{}
		if paths != "" {
			mask.Paths = strings.Split(paths, ",")
		}
		before := &iampb.Identity{Uid: "u", Name: "old", Email: "e@example.com", Relationship: keys("k")}
		once := proto.CloneOf(before)
		if err := Apply(mask, from, once); err != nil {
			if !errors.Is(err, fault.InvalidArgument) {
				t.Fatalf("error = %v", err)
			}
			if !proto.Equal(before, once) {
				t.Fatalf("refused, and still made %v", once)
			}
			return
		}
		if once.Uid != before.Uid || once.Email != before.Email || once.CreateTime != nil {
			t.Fatalf("mask %q changed what is the service's: %v", paths, once)
		}
		twice := proto.CloneOf(once)
		if err := Apply(mask, from, twice); err != nil || !proto.Equal(once, twice) {
			t.Fatalf("again: %v, then %v, error %v", once, twice, err)
		}
	})
}
