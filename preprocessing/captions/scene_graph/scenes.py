"""Nouns that name a place rather than a thing in it, much as the categories of places that scene recognition uses."""

from __future__ import annotations

_NAMES = """
abbey, academy, airfield, airport, aisle, alcove, alley, alleyway, amphitheater, amphitheatre, amusement park,
apartment, aquarium, aqueduct, arcade, archipelago, archive, area, arena, army base, art gallery, art studio,
assembly line, athletic field, atrium, attic, auditorium, auto factory, avenue, background, backyard, badlands,
bakery, balcony, ball pit, ballpark, ballroom, bank vault, banquet hall, bar, barbershop, barn, barnyard, barracks,
baseball diamond, baseball field, basement, basilica, basketball court, bathroom, battlefield, bay, bayou, bazaar,
beach, beach house, beauty salon, bedchamber, bedroom, beer garden, beer hall, berth, bistro, blacktop, boardwalk,
boat deck, boathouse, bookstore, botanical garden, boulevard, boutique, bowling alley, boxing ring, brewery, bridge,
brook, building facade, bullpen, bullring, bunker, burial chamber, bus interior, bus station, bus stop, butcher
shop, cabin, cafe, cafeteria, café, camp, campground, campsite, campus, canal, candy store, canyon, car interior,
carnival, carousel, carport, casino, castle, catacomb, cathedral, cave, cavern, cellar, cemetery, chalet, chapel,
chateau, childs room, church, cinema, circus, city, classroom, clearing, cliff, clinic, cloister, closet, clothing
store, cloudscape, clubhouse, coast, coastline, cockpit, coffee shop, college, colosseum, concert hall, condominium,
conference center, conference room, conservatory, construction site, convent, convention center, corn field, corner
store, cornfield, corral, corridor, cottage, countryside, court, courthouse, courtroom, courtyard, cove, creek,
crevasse, crossroad, crosswalk, cul-de-sac, dam, dance floor, dancefloor, deck, deli, delicatessen, delta,
department store, desert, desert road, diner, dining car, dining hall, dining room, dirt road, discotheque, dock,
dockyard, dojo, dorm, dormitory, downtown, driveway, drugstore, dune, elevator lobby, elevator shaft, embankment,
embassy, engine room, escarpment, estuary, factory, fair, fairground, fairway, falls, farm, farmhouse, farmland,
farmyard, fastfood restaurant, field, field road, fire escape, fire station, firehouse, fishpond, fjord, flea
market, floe, flower shop, food court, football field, footpath, forecourt, foreground, forest, forest path, forest
road, formal garden, fort, fortress, foundry, foyer, freeway, game room, garage, garbage dump, garden, gas station,
gazebo, general store, geyser, ghost town, gift shop, glacier, glade, golf course, gorge, grassland, graveyard,
greenhouse, grocery, grocery store, grotto, grove, gulch, gym, gymnasium, hall, hallway, hangar, harbor, harbour,
hardware store, hayfield, heath, hedge maze, heliport, highland, highway, hill, hillside, hilltop, hockey rink,
home, home office, home theater, horizon, hospital, hospital room, hot spring, hotel, hotel lobby, hotel room,
house, hunting lodge, hut, ice cream parlor, ice field, ice floe, ice rink, ice shelf, iceberg, igloo, industrial
area, inlet, inn, intersection, island, islet, jacuzzi, jail, jail cell, japanese garden, jewelry shop, jungle,
junkyard, kasbah, kennel, kindergarten, kitchen, kitchenette, lab, laboratory, labyrinth, lagoon, lake, lakeshore,
lakeside, landfill, landing, landing strip, lane, laundromat, laundry room, lawn, lecture hall, legislative chamber,
library, lighthouse, lobby, locker room, loft, lounge, lunchroom, manor, mansion, marina, market, marketplace,
marsh, marshland, martial arts gym, mausoleum, meadow, medina, mesa, mess hall, metro, mill, mine, moat, monastery,
moor, moorland, mosque, motel, mountain, mountain path, mountain range, mountainside, mountaintop, movie theater,
museum, music studio, natural history museum, nature reserve, neighborhood, neighbourhood, nightclub, nursery,
nursing home, oasis, ocean, office, office building, office cubicle, opera house, operating room, orchard, orchestra
pit, outback, outdoors, pagoda, palace, pantry, park, parking garage, parking lot, parking space, parlor, parlour,
pasture, path, pathway, patio, pavilion, pawn shop, peak, peninsula, pet shop, pharmacy, picnic area, pier,
pizzeria, plain, plantation, plateau, platform, playground, playing field, playroom, plaza, podium, pond, pool, pool
hall, poolside, porch, port, prairie, prison, promenade, pub, quarry, quay, race track, racecourse, racetrack,
raceway, railroad track, railway, railway station, rainforest, ranch, rapids, ravine, recreation room, reef, repair
shop, residential neighborhood, resort, restaurant, restaurant kitchen, restaurant patio, restroom, rice field, rice
paddy, ridge, riding arena, rink, river, riverbank, riverbed, riverfront, riverside, road, roadside, roadway, rock
arch, roof garden, rooftop, room, rope bridge, ruin, running track, runway, salon, sand dune, sandbar, sandbox,
sauna, savanna, savannah, scene, school, schoolhouse, schoolyard, science museum, sea, seashore, seaside, server
room, shack, shed, shelter, shipyard, shoe shop, shop, shopfront, shopping center, shopping mall, shore, shoreline,
showroom, shrine, sideline, sidewalk, skate park, skatepark, ski area, ski hill, ski lodge, ski resort, ski slope,
sky, skyline, skyscraper, slope, slum, snowfield, soccer field, stable, stadium, stage, stairway, stairwell,
station, storage room, store, storefront, stream, street, street corner, studio, subdivision, suburb, subway, subway
station, summit, supermarket, sushi bar, swamp, swimming hole, swimming pool, synagogue, tavern, tearoom, temple,
tennis court, terrace, theater, theatre, throne room, ticket booth, topiary garden, town, town hall, town square,
toyshop, track, trail, train station, train track, train yard, treehouse, trench, tundra, tunnel, underpass,
underwater, university, utility room, valley, vegetable garden, veranda, verandah, veterinarians office, viaduct,
village, vineyard, volcano, volleyball court, waiting room, walkway, warehouse, water park, waterfall, waterfront,
watering hole, waterway, wetland, wharf, wheat field, wilderness, windmill, winery, woodland, woods, workplace,
workshop, yard, youth hostel, zen garden, zoo
"""
SCENES = frozenset(name.strip() for name in _NAMES.replace("\n", " ").split(","))


def is_scene(word: str, lemma: str, phrase_lemma: str) -> bool:
    """Whether a noun, or the noun with its compounds, names a place.

    Args:
        word: the noun as written, in lower case ("woods" are a place, "wood" is none).
        lemma: its base form: "room".
        phrase_lemma: the same with its compounds before it: "living room".
    """
    return lemma in SCENES or word in SCENES or phrase_lemma in SCENES
