package wire

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	capabilitiespb "github.com/holdfast-dev/holdfast/gen/capabilities"
	commonpb "github.com/holdfast-dev/holdfast/gen/common"
	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
)

func TestJSON(t *testing.T) {
	at := timestamppb.New(time.Date(2026, 3, 4, 5, 6, 7, 8_999_999, time.UTC))
	tests := map[string]struct {
		message proto.Message
		want    string
	}{
		"fields at their default are there": {
			&iampb.Group{},
			`{"uid":"","name":"","description":"","resourceLimits":{},"verified":false,"kind":"ORG_KIND_UNSPECIFIED",` +
				`"status":"ORG_STATUS_UNSPECIFIED"}`,
		},
		"times have three digits": {
			&iampb.Identity{CreateTime: at, UpdateTime: timestamppb.New(time.Unix(0, 0))},
			`{"uid":"","name":"","description":"","email":"","emailUnverified":"","company":"",` +
				`"createTime":"2026-03-04T05:06:07.008Z","updateTime":"1970-01-01T00:00:00.000Z"}`,
		},
		"our additions to the public API, only if they are not empty": {
			&iampb.IdentityProvider{Name: "okta", Trusted: true},
			`{"uid":"","name":"okta","description":"","defaultRole":"","trusted":true}`,
		},
		"the first and the last time there is": {
			&iampb.Identity_StaticKeys{ExpirationTime: &timestamppb.Timestamp{Seconds: minSeconds}},
			`{"issuer":"","subject":"","issuerKeys":"","expirationTime":"0001-01-01T00:00:00.000Z","audiences":[]}`,
		},
		"an empty page": {
			&iampb.ListGroupsResponse{TotalCount: proto.Int64(0)},
			`{"groups":[],"nextPageToken":"","totalCount":"0","skipped":0}`,
		},
		"a total that is not known is left out": {
			&iampb.ListGroupsResponse{Skipped: 3},
			`{"groups":[],"nextPageToken":"","skipped":3}`,
		},
		"only the member of a oneof that is set, even to nothing": {
			&iampb.Identity_ClaimMatch{
				Iss:    &iampb.Identity_ClaimMatch_Issuer{},
				Claims: map[string]string{"b": "2", "a": "1", "c": "3"},
			},
			`{"issuer":"","claims":{"a":"1","b":"2","c":"3"},"claimPatterns":{}}`,
		},
		"what clients only send is left out": {
			&iampb.RoleBinding{Uid: "u", IdentityUid: "i", RoleUid: "r"},
			`{"uid":"u"}`,
		},
		"capabilities by name, or by number without one": {
			&iampb.Role{Capabilities: []capabilitiespb.Capability{capabilitiespb.Capability_CAP_IAM_GROUPS_LIST, 99999}},
			`{"uid":"","name":"","description":"","capabilities":["CAP_IAM_GROUPS_LIST",99999]}`,
		},
		"text is escaped where JSON needs it": {
			&commonpb.UIDPFilter{ChildrenOf: "\"\\\n\r\t\x00\x1f<é\u2028😀"},
			`{"ancestorsOf":"","descendantsOf":"","childrenOf":"\"\\\n\r\t\u0000\u001f<é` + "\u2028" +
				`😀","inRoot":false,"ids":[]}`,
		},
		"well-known types are protojson's": {
			&fieldmaskpb.FieldMask{Paths: []string{"create_time", "name"}},
			`"createTime,name"`,
		},
		"a duration": {
			&errdetails.RetryInfo{RetryDelay: durationpb.New(1500 * time.Millisecond)}, `{"retryDelay":"1.500s"}`,
		},
		"a struct, without gaps": {mustStruct(map[string]any{"b": []any{1.0, nil}, "a": "x y"}), `{"a":"x y","b":[1,null]}`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var e Encoder
			got, err := e.Append(nil, tt.message)
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

func mustStruct(m map[string]any) *structpb.Struct {
	s, err := structpb.NewStruct(m)
	if err != nil {
		panic(err)
	}
	return s
}

func TestJSONRefuses(t *testing.T) {
	tests := map[string]proto.Message{
		"text that is not UTF-8":     &iampb.Group{Name: "\xff"},
		"a map key that is not":      &iampb.Identity_ClaimMatch{Claims: map[string]string{"\xff": ""}},
		"a time after the year 9999": &iampb.Group{CreateTime: &timestamppb.Timestamp{Seconds: maxSeconds + 1}},
		"a time before the year 1":   &iampb.Group{CreateTime: &timestamppb.Timestamp{Seconds: minSeconds - 1}},
		"negative nanoseconds":       &iampb.Group{CreateTime: &timestamppb.Timestamp{Nanos: -1}},
		"a mask JSON cannot say":     &iampb.UpdateGroupRequest{UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"A"}}},
	}
	for name, m := range tests {
		t.Run(name, func(t *testing.T) {
			var e Encoder
			if b, err := e.Append(nil, m); err == nil {
				t.Errorf("wrote %s", b)
			}
		})
	}
}

// ownTypes returns the message types in the packages of this API.
func ownTypes() []protoreflect.MessageType {
	var all []protoreflect.MessageType
	protoregistry.GlobalTypes.RangeMessages(func(t protoreflect.MessageType) bool {
		if strings.HasPrefix(string(t.Descriptor().FullName()), "holdfast.") && !t.Descriptor().IsMapEntry() {
			all = append(all, t)
		}
		return true
	})
	return all
}

// FuzzJSON checks that the Encoder and protojson agree: either both return an error, or
// protojson reads the same message from the JSON that the Encoder wrote.
func FuzzJSON(f *testing.F) {
	for _, m := range []proto.Message{
		groupPage(2), &iampb.RoleBinding{Uid: "u", IdentityUid: "i", CreateTime: timestamppb.New(time.Unix(1, 999_999_999))},
		&iampb.Identity{Relationship: &iampb.Identity_ServicePrincipal{ServicePrincipal: 77}},
		&iampb.UpdateGroupRequest{UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"a_b.c"}}},
	} {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	types := ownTypes()
	var e Encoder
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, typ := range types {
			m := typ.New().Interface()
			if proto.Unmarshal(b, m) != nil {
				continue
			}
			forget(m.ProtoReflect())
			got, err := e.Append(nil, m)
			if _, perr := protojson.Marshal(m); (err == nil) != (perr == nil) {
				t.Fatalf("%s: error %v, protojson's %v", typ.Descriptor().FullName(), err, perr)
			}
			if err != nil {
				continue
			}
			back := typ.New().Interface()
			if err := protojson.Unmarshal(got, back); err != nil {
				t.Fatalf("%s: protojson does not read %s: %v", typ.Descriptor().FullName(), got, err)
			}
			if !proto.Equal(m, back) {
				t.Fatalf("%s: %v came back from %s as %v", typ.Descriptor().FullName(), m, got, back)
			}
		}
	})
}

// forget removes the parts of a message that its JSON does not contain: unknown fields,
// input-only fields, and fractions of a millisecond.
func forget(m protoreflect.Message) {
	m.SetUnknown(nil)
	if t, ok := m.Interface().(*timestamppb.Timestamp); ok && t.CheckValid() == nil {
		t.Nanos -= t.Nanos % 1e6
	}
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case HasBehavior(f, annotations.FieldBehavior_INPUT_ONLY):
			m.Clear(f)
		case f.Message() == nil:
		case f.IsList():
			for i := range v.List().Len() {
				forget(v.List().Get(i).Message())
			}
		case f.IsMap():
			v.Map().Range(func(_ protoreflect.MapKey, e protoreflect.Value) bool {
				if f.MapValue().Message() != nil {
					forget(e.Message())
				}
				return true
			})
		default:
			forget(v.Message())
		}
		return true
	})
}

func groupPage(n int) *iampb.ListGroupsResponse {
	r := &iampb.ListGroupsResponse{TotalCount: proto.Int64(1_000_000), NextPageToken: "next"}
	for i := range n {
		r.Groups = append(r.Groups, &iampb.Group{
			Uid:  fmt.Sprintf("0123456789abcdef0123456789abcdef01234567/aaaaaaaaaaaaaaaa/%016x", i),
			Name: "staging", Description: "what the group is for", Status: iampb.OrgStatus_ORG_STATUS_READY,
			CreateTime: timestamppb.New(time.UnixMilli(1_700_000_000_000)),
			UpdateTime: timestamppb.New(time.UnixMilli(1_700_000_000_123)),
		})
	}
	return r
}

func BenchmarkJSON(b *testing.B) {
	page := groupPage(200)
	b.Run("ours", func(b *testing.B) {
		var e Encoder
		var buf []byte
		for b.Loop() {
			buf, _ = e.Append(buf[:0], page)
		}
	})
	b.Run("protojson", func(b *testing.B) {
		var buf []byte
		for b.Loop() {
			buf, _ = protojson.MarshalOptions{EmitDefaultValues: true}.MarshalAppend(buf[:0], page)
		}
	})
}
