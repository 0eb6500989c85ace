// The icons of the console: lines on a grid of 16 by 16.
const shapes = {
  home: "M2.5 7.5 8 3l5.5 4.5V13H10V9.5H6V13H2.5z",
  search: "M7 11.5a4.5 4.5 0 1 0 0-9 4.5 4.5 0 0 0 0 9zM10.4 10.4 14 14",
  tree: "M2.5 2.5H6v3H2.5zM9.5 6.5H13v3H9.5zM9.5 11.5H13v3H9.5zM4.2 5.5V13h5.3M4.2 8h5.3",
  key: "M10.4 9.2a3.6 3.6 0 1 0-3.3-2.1l-4.6 4.6v1.8H5V12h1.6v-1.6h1.5l.9-.9c.4.1.9.2 1.4-.3zM11.2 4.8h.01",
  people: "M6 8a2.5 2.5 0 1 0 0-5 2.5 2.5 0 0 0 0 5zM1.5 13.5c0-2.4 2-4 4.5-4s4.5 1.6 4.5 4M11 3.2a2.5 2.5 0 0 1 0 4.6",
  chip: "M4.5 4.5h7v7h-7zM6.5 2v2.5M9.5 2v2.5M6.5 11.5V14M9.5 11.5V14M2 6.5h2.5M2 9.5h2.5M11.5 6.5H14M11.5 9.5H14",
  door: "M9 2.5h4.5v11H9M2.5 8h7M6.8 5l3 3-3 3",
  box: "m8 1.8 5.5 3v6.4L8 14.2l-5.5-3V4.8zM2.5 4.8 8 8l5.5-3.2M8 8v6.2",
  shield: "m8 1.8 5 1.9v4c0 3.2-2 5.3-5 6.5-3-1.2-5-3.3-5-6.5v-4zM8 5v3.2M8 10.6h.01",
  clock: "M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12zM8 4.8V8l2.2 1.6",
  bolt: "M8.8 1.8 3.5 9H8l-.8 5.2L12.5 7H8z",
  person: "M8 8.2a2.8 2.8 0 1 0 0-5.6 2.8 2.8 0 0 0 0 5.6zM2.8 14c.3-2.7 2.4-4.2 5.2-4.2s4.9 1.5 5.2 4.2",
  server: "M2.5 3h11v4h-11zM2.5 9h11v4h-11zM5 5h.01M5 11h.01",
  menu: "M2.5 4.5h11M2.5 8h11M2.5 11.5h11",
  cross: "m4 4 8 8M12 4l-8 8",
};
export type IconName = keyof typeof shapes;

/** Icon is decoration: the text next to it says the same. */
export const Icon = ({ name }: { name: IconName }) => (
  <svg class="icon" viewBox="0 0 16 16" width="16" height="16" aria-hidden="true">
    <path d={shapes[name]} />
  </svg>
);
