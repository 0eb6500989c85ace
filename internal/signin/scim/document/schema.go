package document

import (
	"slices"
	"strings"
)

// An attribute describes an attribute of a schema.
type attribute struct {
	name, kind string // kind is a type of RFC 7643, section 2.3
	flags      flag
	about      string
	subs       []attribute
}

type flag int

const (
	multi flag = 1 << iota
	required
	caseExact
	readOnly
	unique
	neverReturned
)

var multiValue = []attribute{
	{"value", "string", 0, "The value.", nil},
	{"display", "string", 0, "The value as people read it.", nil},
	{"type", "string", 0, "The function of the value, such as work.", nil},
	{"primary", "boolean", 0, "Whether this is the preferred value.", nil},
}

var userAttributes = []attribute{
	{"userName", "string", required | unique, "The name that identifies the user at the directory.", nil},
	{"name", "complex", 0, "The parts of the user's name.", []attribute{
		{"formatted", "string", 0, "The full name.", nil},
		{"familyName", "string", 0, "The family name.", nil},
		{"givenName", "string", 0, "The given name.", nil},
		{"middleName", "string", 0, "The middle names.", nil},
		{"honorificPrefix", "string", 0, "The title before the name.", nil},
		{"honorificSuffix", "string", 0, "The title after the name.", nil},
	}},
	{"displayName", "string", 0, "The name that people see.", nil},
	{"nickName", "string", 0, "The casual name.", nil},
	{"profileUrl", "reference", 0, "The address of the user's page.", nil},
	{"title", "string", 0, "The job title.", nil},
	{"userType", "string", 0, "The relation to the organization.", nil},
	{"preferredLanguage", "string", 0, "The preferred language.", nil},
	{"locale", "string", 0, "The locale.", nil},
	{"timezone", "string", 0, "The time zone.", nil},
	{"active", "boolean", 0, "Whether the user has access.", nil},
	{"password", "string", neverReturned, "Accepted and not stored.", nil},
	{"emails", "complex", multi, "The e-mail addresses.", multiValue},
	{"phoneNumbers", "complex", multi, "The phone numbers.", multiValue},
	{"ims", "complex", multi, "The addresses for instant messages.", multiValue},
	{"photos", "complex", multi, "The addresses of photos. Large photos are not stored.", multiValue},
	{"addresses", "complex", multi, "The postal addresses.", []attribute{
		{"formatted", "string", 0, "The full address.", nil},
		{"streetAddress", "string", 0, "The street and the number.", nil},
		{"locality", "string", 0, "The city.", nil},
		{"region", "string", 0, "The state or region.", nil},
		{"postalCode", "string", 0, "The postal code.", nil},
		{"country", "string", 0, "The country.", nil},
		{"type", "string", 0, "The function of the address.", nil},
		{"primary", "boolean", 0, "Whether this is the preferred address.", nil},
	}},
	{"entitlements", "complex", multi, "Stored and returned. They grant nothing.", multiValue},
	{"roles", "complex", multi, "Stored and returned. They grant nothing.", multiValue},
	{"x509Certificates", "complex", multi, "The certificates.", multiValue},
}

var groupAttributes = []attribute{
	{"displayName", "string", required | unique, "The name of the team.", nil},
	{"members", "complex", multi, "The users of the team. Groups are not supported.", []attribute{
		{"value", "string", 0, "The id of a user.", nil},
		{"$ref", "reference", 0, "The address of the user.", nil},
		{"type", "string", 0, "User.", nil},
	}},
}

var enterpriseAttributes = []attribute{
	{"employeeNumber", "string", 0, "The employee number.", nil},
	{"costCenter", "string", 0, "The cost center.", nil},
	{"organization", "string", 0, "The name of the organization.", nil},
	{"division", "string", 0, "The name of the division.", nil},
	{"department", "string", 0, "The name of the department.", nil},
	{"manager", "complex", 0, "The user's manager.", []attribute{
		{"value", "string", 0, "The id of the manager.", nil},
		{"$ref", "reference", 0, "The address of the manager.", nil},
		{"displayName", "string", readOnly, "The name of the manager.", nil},
	}},
}

// commonNames are the other names of known attributes.
var commonNames = []string{
	"id", "externalId", "schemas", "meta", "groups", "members", "$ref", "resourceType", "created", "lastModified",
	"location", "version", "Operations", "op", "path", "value",
	"attributes", "excludedAttributes", "filter", "startIndex", "count", "sortBy", "sortOrder",
	UserSchema, GroupSchema, EnterpriseSchema,
}

var (
	spelling     = map[string]string{} // the usual spelling of known names, by the name in lower case
	booleans     = map[string]bool{}
	multiValued  = map[string]bool{}
	exactStrings = map[string]bool{"id": true, "externalid": true, "$ref": true, "location": true, "version": true}
)

func init() {
	for _, name := range commonNames {
		spelling[strings.ToLower(name)] = name
	}
	multiValued["members"] = true
	for _, attributes := range [][]attribute{userAttributes, enterpriseAttributes} {
		register(attributes)
	}
}

func register(attributes []attribute) {
	for _, a := range attributes {
		key := strings.ToLower(a.name)
		spelling[key] = a.name
		booleans[key] = booleans[key] || a.kind == "boolean"
		multiValued[key] = multiValued[key] || a.flags&multi != 0
		register(a.subs)
	}
}

// Name returns the usual spelling of the name of an attribute or a schema.
func Name(name string) string {
	if known, ok := spelling[name]; ok {
		return known
	}
	if known, ok := spelling[strings.ToLower(name)]; ok {
		return known
	}
	return name
}

// IsMultiValued reports whether an attribute of a schema of this service has several values.
func IsMultiValued(name string) bool { return multiValued[strings.ToLower(name)] }

// IsCaseExact reports whether capitals matter in the values of an attribute.
func IsCaseExact(name string) bool { return exactStrings[strings.ToLower(name)] }

// IsSchema reports whether a text is the name of a schema of this service.
func IsSchema(text string) bool {
	return strings.EqualFold(text, UserSchema) || strings.EqualFold(text, GroupSchema) ||
		strings.EqualFold(text, EnterpriseSchema)
}

// IsCore reports whether a text is the name of a core schema, whose attributes are at the top of a resource.
func IsCore(text string) bool {
	return strings.EqualFold(text, UserSchema) || strings.EqualFold(text, GroupSchema)
}

// SchemasOf returns the value of the attribute schemas of a user: the core schema and the extensions of the resource.
func SchemasOf(core string, o Object) []any {
	schemas := []any{core}
	var extensions []string
	for name := range o {
		if len(name) > len(extensionMark) && strings.EqualFold(name[:len(extensionMark)], extensionMark) {
			extensions = append(extensions, name)
		}
	}
	slices.Sort(extensions)
	for _, name := range extensions {
		schemas = append(schemas, name)
	}
	return schemas
}
