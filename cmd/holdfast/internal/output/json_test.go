package output

import (
	"encoding/json"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	capabilitiespb "github.com/holdfast-dev/holdfast/gen/capabilities"
	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
)

func TestJSON(t *testing.T) {
	noon := timestamppb.New(time.Date(2030, 1, 31, 12, 0, 0, 0, time.UTC))
	tests := map[string]struct {
		message proto.Message
		want    string
	}{
		"empty fields are written, unset messages are not": {
			&iampb.Group{Uid: "a"},
			`{"uid":"a","name":"","description":"","resourceLimits":{},"verified":false,` +
				`"kind":"ORG_KIND_UNSPECIFIED","status":"ORG_STATUS_UNSPECIFIED"}`,
		},
		"a time has three digits of a second, and numbers are in order": {
			&iampb.Group{ResourceLimits: map[string]int32{"b": 2, "a": 1}, Kind: 99, CreateTime: noon},
			`{"uid":"","name":"","description":"","resourceLimits":{"a":1,"b":2},"verified":false,` +
				`"createTime":"2030-01-31T12:00:00.000Z","kind":99,"status":"ORG_STATUS_UNSPECIFIED"}`,
		},
		"lists of enums, and text that needs quotes": {
			&iampb.Role{
				Name: "<\"\n>", Capabilities: []capabilitiespb.Capability{capabilitiespb.Capability_CAP_IAM_GROUPS_LIST},
			},
			`{"uid":"","name":"<\"\n>","description":"","capabilities":["CAP_IAM_GROUPS_LIST"]}`,
		},
		"what is only sent is not shown": {
			&iampb.GroupInvite{Ttl: durationpb.New(time.Hour), RoleUid: "r"},
			`{"uid":"","roleUid":"r","email":"","singleUse":false,"code":"","keyId":""}`,
		},
		"a map of numbers is in their order": {
			&iampb.AccountAssociation_GitHub{
				AppInstallations: map[int64]*iampb.AccountAssociation_GitHubAppInstallations{10: {}, 9: {}},
			},
			`{"appInstallations":{"9":{"installations":[]},"10":{"installations":[]}}}`,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := appendJSON(nil, tt.message.ProtoReflect())
			if string(got) != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
			back := tt.message.ProtoReflect().New().Interface()
			if err := protojson.Unmarshal(got, back); err != nil || !json.Valid(got) {
				t.Errorf("cannot be read back: %v", err)
			}
		})
	}
}
